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
    tally_value=$(printf '%b.' "${tally_rest%%"$tally_tab"*}")
    tally_value=${tally_value%.} tally_rest=${tally_rest#*"$tally_tab"}
    tally_number=$((tally_number + 1))
}
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
        tally_key=${tally_word%%'}'*}
        if [ ! "$tally_key" ]; then
            tally_out=$tally_out$TALLY_LINE
        elif tally_find "$tally_key"; then
            tally_out=$tally_out$tally_value
        else
            tally_out=$tally_out'{'
            continue
        fi
        tally_word=${tally_word#*'}'}
    done
    set -- "$@" "$tally_out$tally_word"
    shift
done
exec "$@"
