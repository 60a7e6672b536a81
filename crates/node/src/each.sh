# Runs the command in the arguments for one row of the list in this directory: the row of $JOB_COMPLETION_INDEX. The other
# files have rows, one on a line, and are named by the index of their first row. Tabs separate the values of a row; a
# backslash begins an escape of printf %b. Arguments: the index of row 0 in the whole list, the text between values in
# TALLY_LINE, the names of the columns (with tabs between them), and the words of the command.
tally_dir=${0%/*} tally_first=$1 tally_join=$2 tally_names=$3
shift 3
tally_tab=$(printf '\t')
if [ "${TALLY_EACH_ROW+set}" ]; then
    tally_row=$TALLY_EACH_ROW
    unset TALLY_EACH_ROW
else
    tally_at=0
    for tally_file in "$tally_dir"/[0-9]*; do
        tally_file=${tally_file##*/}
        if [ "$tally_file" -le "$JOB_COMPLETION_INDEX" ] && [ "$tally_file" -gt "$tally_at" ]; then
            tally_at=$tally_file
        fi
    done
    tally_row=$(sed -n "$((JOB_COMPLETION_INDEX - tally_at + 1)){s/^/:/;p;q;}" "$tally_dir/$tally_at")
    if [ ! "$tally_row" ]; then
        echo "the list has no row $JOB_COMPLETION_INDEX" >&2
        exit 125
    fi
    tally_row=${tally_row#:}
fi
tally_begin() {
    tally_rest=$tally_row$tally_tab tally_names_left=$tally_names$tally_tab tally_number=0
}
tally_next() {
    tally_name=${tally_names_left%%"$tally_tab"*} tally_names_left=${tally_names_left#*"$tally_tab"}
    tally_text=${tally_rest%%"$tally_tab"*} tally_number=$((tally_number + 1))
    # The last value is compared, not searched for: dash takes seconds to skip a long one.
    if [ "$tally_rest" = "$tally_text$tally_tab" ]; then tally_rest=; else tally_rest=${tally_rest#*"$tally_tab"}; fi
    tally_value=$(printf '%b.' "$tally_text")
    tally_value=${tally_value%.}
}
# The value with the name or the number $1.
tally_find() {
    tally_begin
    tally_numbered=
    while [ "$tally_rest" ]; do
        tally_next
        [ "$tally_name" = "$1" ] && return
        [ "$tally_number" = "$1" ] && tally_numbered=.$tally_value
    done
    tally_value=${tally_numbered#.}
    [ "$tally_numbered" ]
}
tally_strip_slashes() {
    while case $tally_value in */) ;; *) false ;; esac do tally_value=${tally_value%/}; done
}
# Adds a part of the value to the word. The parts of a path are those of GNU parallel.
tally_add() {
    case $tally_part in
    '') ;;
    //)
        [ "$tally_value" ] || tally_value=.
        tally_strip_slashes
        case $tally_value in
        '') tally_value=/ ;;
        */*)
            tally_value=${tally_value%/*}
            tally_strip_slashes
            tally_value=${tally_value:-/}
            ;;
        *) tally_value=. ;;
        esac
        ;;
    *)
        tally_base=$tally_value
        # Only if there is a slash: dash takes seconds to find none in a long value.
        case $tally_value in */*) tally_base=${tally_value##*/} ;; esac
        case $tally_part in
        .) case $tally_base in *.*) tally_value=${tally_value%.*} ;; esac ;;
        /) tally_value=$tally_base ;;
        /.) tally_value=${tally_base%.*} ;;
        esac
        ;;
    esac
    tally_out=$tally_out$tally_value
}
# Adds what {$1} stands for to the word. Fails if it stands for itself.
tally_put() {
    case $1 in
    '') tally_out=$tally_out$TALLY_LINE; return ;;
    '#') tally_out=$tally_out$((TALLY_INDEX + 1)); return ;;
    '\{') tally_out=$tally_out'{'; return ;;
    */.) tally_part=/. ;;
    *.) tally_part=. ;;
    *//) tally_part=// ;;
    */) tally_part=/ ;;
    *) tally_part= ;;
    esac
    if [ "$1" != "$tally_part" ]; then
        tally_find "${1%"$tally_part"}" && tally_add
        return
    fi
    tally_begin
    while [ "$tally_rest" ]; do
        tally_next
        [ "$tally_number" = 1 ] || tally_out=$tally_out$tally_join
        tally_add
    done
}
tally_begin
TALLY_LINE= TALLY_INDEX=$((tally_first + JOB_COMPLETION_INDEX))
while [ "$tally_rest" ]; do
    tally_next
    [ "$tally_number" = 1 ] || TALLY_LINE=$TALLY_LINE$tally_join
    TALLY_LINE=$TALLY_LINE$tally_value
    [ ! "$tally_name" ] || export "TALLY_COLUMN_$tally_name=$tally_value"
done
export TALLY_INDEX TALLY_LINE
for tally_word do
    tally_out=
    while case $tally_word in *'{'*'}'*) ;; *) false ;; esac do
        tally_out=$tally_out${tally_word%%'{'*} tally_word=${tally_word#*'{'}
        if tally_put "${tally_word%%'}'*}"; then
            tally_word=${tally_word#*'}'}
        else
            tally_out=$tally_out'{'
        fi
    done
    set -- "$@" "$tally_out$tally_word"
    shift
done
exec "$@"
