//! Amounts of resources: `500m`, `1Gi`, `2e3`. Exact, never a floating-point number.
//!
//! A quantity is a whole number times a power of ten. The suffix that a client wrote determines how the amount is
//! written back: with decimal suffixes, with binary ones, or with an exponent. The canonical form has no fraction and
//! the largest suffix that loses nothing.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

/// The maximum number of digits: more precision has no use, and this many digits times a thousand fit 128 bits.
const MAX_DIGITS: usize = 35;
/// Beyond this power of ten amounts can be neither compared nor added, and no real amount is that large.
const MAX_EXPONENT: i32 = 1000;
/// The smallest unit, as a power of ten: finer amounts are rounded up.
const NANO: i32 = -9;
/// The reference keeps a number of up to this many digits as written, if it looks canonical.
const PLAIN_DIGITS: i32 = 18;

#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    mantissa: i128,
    /// Power of ten. At least `NANO`.
    scale: i32,
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Decimal,
    Binary,
    Exponent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse numeric part of quantity")]
    Number,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// The text as the API writes it back. Borrowed if it is already that.
pub fn canonical(text: &str) -> Result<Cow<'_, str>, QuantityError> {
    let (quantity, kept) = read(text)?;
    Ok(if kept { Cow::Borrowed(text) } else { Cow::Owned(quantity.to_string()) })
}

impl Quantity {
    pub const ZERO: Quantity = Quantity { mantissa: 0, scale: 0, format: Format::Decimal };

    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        read(text).map(|(quantity, _)| quantity)
    }

    pub fn from_int(number: i64) -> Self {
        Quantity { mantissa: number.into(), ..Self::ZERO }
    }

    pub fn is_zero(&self) -> bool {
        self.mantissa == 0
    }

    pub fn is_negative(&self) -> bool {
        self.mantissa < 0
    }

    /// Without a fraction.
    pub fn is_integer(&self) -> bool {
        self.scale >= 0 || power(-self.scale).is_some_and(|unit| self.mantissa % unit == 0)
    }

    /// The whole number, with a fraction rounded away from zero, limited to the range of 64 bits.
    pub fn value(&self) -> i64 {
        self.in_units(0)
    }

    /// Thousandths, rounded and limited in the same way.
    pub fn milli_value(&self) -> i64 {
        self.in_units(-3)
    }

    fn in_units(&self, scale: i32) -> i64 {
        let bound = |number: i128| number.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        if self.scale < scale {
            return bound(round_up(self.mantissa, scale - self.scale));
        }
        match power(self.scale - scale).and_then(|unit| self.mantissa.checked_mul(unit)) {
            Some(number) => bound(number),
            None if self.mantissa < 0 => i64::MIN,
            None if self.mantissa == 0 => 0,
            None => i64::MAX,
        }
    }

    /// The sum, in the format of the first operand unless that is zero. None if it has too many digits.
    pub fn checked_add(&self, other: &Quantity) -> Option<Quantity> {
        let (scale, format) = (self.scale.min(other.scale), if self.is_zero() { other.format } else { self.format });
        let mantissa = self.mantissa_at(scale)?.checked_add(other.mantissa_at(scale)?)?;
        Some(Quantity { mantissa, scale, format })
    }

    pub fn negated(&self) -> Quantity {
        Quantity { mantissa: -self.mantissa, ..*self }
    }

    fn mantissa_at(&self, scale: i32) -> Option<i128> {
        if self.mantissa == 0 { Some(0) } else { self.mantissa.checked_mul(power(self.scale - scale)?) }
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        let signs = self.mantissa.signum().cmp(&other.mantissa.signum());
        if signs != Ordering::Equal {
            return signs;
        }
        let scale = self.scale.min(other.scale);
        match (self.mantissa_at(scale), other.mantissa_at(scale)) {
            (Some(left), Some(right)) => left.cmp(&right),
            // Only the operand with the larger unit can be too large to be expressed in the smaller unit.
            (None, _) => 0.cmp(&self.mantissa.signum()).reverse(),
            (_, None) => 0.cmp(&self.mantissa.signum()),
        }
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

/// The canonical form.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.mantissa == 0 {
            return f.write_str("0");
        }
        if self.format == Format::Binary
            && let Some(mut number) = self.as_whole()
            && number.abs() >= 1024
        {
            let mut times = 0;
            while number % 1024 == 0 && times < BINARY.len() {
                number /= 1024;
                times += 1;
            }
            let suffix = if times == 0 { "" } else { BINARY[times - 1].0 };
            return write!(f, "{number}{suffix}");
        }
        let (number, exponent) = self.in_thousands();
        let suffix = DECIMAL.iter().find(|(_, power)| *power == exponent);
        match suffix {
            Some((suffix, _)) if self.format != Format::Exponent => write!(f, "{number}{suffix}"),
            _ if exponent == 0 => write!(f, "{number}"),
            _ => write!(f, "{number}e{exponent}"),
        }
    }
}

impl Quantity {
    /// For an amount other than zero: its shortest whole number with an exponent that a suffix can express.
    fn in_thousands(&self) -> (i128, i32) {
        let (mut number, mut exponent) = (self.mantissa, self.scale);
        while number % 10 == 0 {
            number /= 10;
            exponent += 1;
        }
        let over = exponent.rem_euclid(3);
        (number * power(over).unwrap_or(1), exponent - over)
    }

    fn as_whole(&self) -> Option<i128> {
        if !self.is_integer() {
            return None;
        }
        if self.scale < 0 {
            return power(-self.scale).map(|unit| self.mantissa / unit);
        }
        self.mantissa_at(0)
    }
}

fn power(exponent: i32) -> Option<i128> {
    u32::try_from(exponent).ok().and_then(|exponent| 10_i128.checked_pow(exponent))
}

/// Drops decimal places, rounding away from zero.
fn round_up(number: i128, places: i32) -> i128 {
    let Some(unit) = power(places) else { return number.signum() };
    number / unit + if number % unit == 0 { 0 } else { number.signum() }
}

/// The amount, and whether the API writes it back unchanged: the reference keeps a text that looks canonical, even if
/// it is not (`1.500`, `+1`).
fn read(text: &str) -> Result<(Quantity, bool), QuantityError> {
    if text.is_empty() {
        return Err(QuantityError::Format);
    }
    if text == "0" {
        return Ok((Quantity::ZERO, true));
    }
    let (negative, unsigned) = match text.as_bytes()[0] {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let unsigned = unsigned.trim_start_matches('0');
    let count = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, rest) = unsigned.split_at(count(unsigned));
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(count(rest)),
        None => ("", rest),
    };
    check_suffix(suffix)?;
    let (exponent, format) = interpret(suffix)?;
    let whole = if whole.is_empty() { "0" } else { whole };
    if whole.len() + fraction.len() > MAX_DIGITS {
        return Err(QuantityError::Number);
    }
    let digits = format!("{whole}{fraction}");
    let shifted: i128 = digits.parse().map_err(|_| QuantityError::Number)?;
    let places = fraction.len() as i32;
    let signed = |number: i128| if negative { -number } else { number };
    let (quantity, plain) = match format {
        Format::Binary => {
            // Only whole numbers of moderate size are kept as written.
            let room = 15 - whole.len() as i32 - (exponent as f32 * 3.0 / 10.0) as i32 - 1;
            let most = i128::from(i64::MAX);
            let number = shifted
                .checked_mul(1_i128 << exponent)
                .filter(|number| power(places).is_none_or(|unit| *number / unit <= most));
            let quantity = match number {
                Some(number) => settled(number, -places, format),
                None => Quantity { mantissa: most, scale: 0, format },
            };
            (quantity, fraction.is_empty() && room >= 0 && exponent % 10 == 0 && shifted & 7 != 0)
        }
        Format::Decimal | Format::Exponent => {
            let scale = exponent.saturating_sub(places);
            let quantity = settled(shifted, scale, format);
            // The canonical form may have more digits or a larger exponent, and must be readable too.
            if !quantity.is_zero() {
                let (number, exponent) = quantity.in_thousands();
                if number >= 10_i128.pow(MAX_DIGITS as u32) {
                    return Err(QuantityError::Number);
                }
                if exponent > MAX_EXPONENT {
                    return Err(QuantityError::Suffix);
                }
            }
            let small = digits.len() as i32 <= PLAIN_DIGITS && scale >= NANO;
            let looks = scale % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0');
            (quantity, small && looks)
        }
    };
    Ok((Quantity { mantissa: signed(quantity.mantissa), ..quantity }, plain))
}

/// Rounded up to the smallest unit.
fn settled(mantissa: i128, scale: i32, format: Format) -> Quantity {
    if scale >= NANO {
        return Quantity { mantissa, scale, format };
    }
    Quantity { mantissa: round_up(mantissa, NANO.saturating_sub(scale)), scale: NANO, format }
}

fn check_suffix(suffix: &str) -> Result<(), QuantityError> {
    let rest = suffix.trim_start_matches(['e', 'E', 'i', 'n', 'u', 'm', 'k', 'K', 'M', 'G', 'T', 'P']);
    let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest);
    if rest.bytes().all(|byte| byte.is_ascii_digit()) { Ok(()) } else { Err(QuantityError::Format) }
}

fn interpret(suffix: &str) -> Result<(i32, Format), QuantityError> {
    if let Some((_, exponent)) = DECIMAL.iter().find(|(known, _)| *known == suffix) {
        return Ok((*exponent, Format::Decimal));
    }
    if let Some((_, exponent)) = BINARY.iter().find(|(known, _)| *known == suffix) {
        return Ok((*exponent as i32, Format::Binary));
    }
    let exponent = suffix.strip_prefix(['e', 'E']).and_then(|digits| digits.parse::<i32>().ok());
    match exponent {
        Some(exponent) if (-MAX_EXPONENT..=MAX_EXPONENT).contains(&exponent) => Ok((exponent, Format::Exponent)),
        _ => Err(QuantityError::Suffix),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use proptest::prelude::*;

    use super::{Quantity, QuantityError, canonical};

    fn quantity(text: &str) -> Quantity {
        Quantity::parse(text).expect("a quantity")
    }

    #[test]
    fn amounts_are_written_in_their_canonical_form() {
        for (text, written) in [
            ("0", "0"),
            ("0.0", "0"),
            ("0Gi", "0"),
            ("m", "0"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("1.5", "1500m"),
            ("1000", "1k"),
            ("1024", "1024"),
            ("2000m", "2"),
            ("100m", "100m"),
            ("1000000", "1M"),
            ("1500k", "1500k"),
            ("1024Mi", "1Gi"),
            ("1Gi", "1Gi"),
            ("8Mi", "8Mi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("0.1Ki", "102400m"),
            ("1025Ki", "1025Ki"),
            ("2e3", "2e3"),
            ("20e2", "2e3"),
            ("1E", "1E"),
            ("1e1", "10"),
            ("0.1n", "1n"),
            ("-1.5", "-1500m"),
            ("-0", "0"),
            ("16Ei", "9223372036854775807"),
            // The reference does not normalize a text that looks canonical.
            ("+1", "+1"),
            ("1.500", "1.500"),
        ] {
            assert_eq!(canonical(text).as_deref(), Ok(written), "{text}");
        }
    }

    #[test]
    fn what_is_no_amount_is_told_why() {
        for text in ["", "lots", "1Q", "1 Gi", "1Gi ", "1.2.3", "0x1", "\u{e9}"] {
            assert_eq!(Quantity::parse(text).map(|_| ()), Err(QuantityError::Format), "{text}");
        }
        for text in ["1e", "1Kn", "1ee3", "1MiMi", "1e99999999999", "1e-2147483648", "1i", "--1"] {
            assert_eq!(Quantity::parse(text).map(|_| ()), Err(QuantityError::Suffix), "{text}");
        }
        let (most, more) = ("9".repeat(35), "9".repeat(36));
        assert!(Quantity::parse(&most).is_ok());
        assert_eq!(Quantity::parse(&more).map(|_| ()), Err(QuantityError::Number));
        // Amounts whose canonical form would be too long.
        assert_eq!(Quantity::parse(&format!("{most}e1")).map(|_| ()), Err(QuantityError::Number));
        assert!(Quantity::parse(&format!("{most}e3")).is_ok());
        assert_eq!(Quantity::parse("1000e1000").map(|_| ()), Err(QuantityError::Suffix));
        assert!(Quantity::parse("100e997").is_ok());
    }

    #[test]
    fn amounts_compare_by_what_they_are() {
        for (less, more) in
            [("1", "1001m"), ("1k", "1Ki"), ("-1", "0"), ("-2Gi", "-1Gi"), ("1Ei", "2e18"), ("9", "1e900")]
        {
            assert!(quantity(less) < quantity(more), "{less} {more}");
            assert!(quantity(more) > quantity(less), "{less} {more}");
            assert!(quantity(more).negated() < quantity(less).negated(), "{less} {more}");
        }
        for (left, right) in [("1", "1000m"), ("1Gi", "1024Mi"), ("0", "0Ki"), ("1e3", "1k")] {
            assert_eq!(quantity(left), quantity(right));
        }
    }

    #[test]
    fn sums_and_whole_numbers() {
        let sum = |left: &str, right: &str| quantity(left).checked_add(&quantity(right)).expect("a sum").to_string();
        assert_eq!(sum("1Gi", "512Mi"), "1536Mi");
        assert_eq!(sum("1", "500m"), "1500m");
        assert_eq!(sum("0", "1Gi"), "1Gi");
        assert_eq!(quantity("1e900").checked_add(&quantity("1")), None);
        for (text, whole, value, milli) in
            [("1500m", false, 2, 1500), ("2", true, 2, 2000), ("-1500m", false, -2, -1500)]
        {
            let amount = quantity(text);
            assert_eq!((amount.is_integer(), amount.value(), amount.milli_value()), (whole, value, milli), "{text}");
        }
        assert_eq!((quantity("1e900").value(), quantity("-1e900").value()), (i64::MAX, i64::MIN));
    }

    proptest! {
        #[test]
        fn the_canonical_form_is_the_same_amount(text in "[+-]?[0-9]{0,20}(\\.[0-9]{0,12})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|e-?[0-9]|E[0-9])?") {
            if let Ok(written) = canonical(&text) {
                let (amount, again) = (quantity(&text), quantity(&written));
                prop_assert_eq!(amount, again);
                prop_assert_eq!(canonical(&written).unwrap(), written.as_ref());
                prop_assert_eq!(quantity(&amount.to_string()), amount);
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in "[0-9.eEinumkKMGTP+-]{0,50}", other in "[0-9.eEinumkKMGTP+-]{0,50}") {
            if let (Ok(left), Ok(right)) = (Quantity::parse(&text), Quantity::parse(&other)) {
                prop_assert_eq!(left.cmp(&right), right.cmp(&left).reverse());
                let _ = (left.checked_add(&right), left.value(), left.milli_value(), left.to_string());
            }
        }
    }
}
