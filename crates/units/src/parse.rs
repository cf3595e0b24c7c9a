//! Shared parsing of a number with a suffix, as in `10mbit` or `24KiB`.

/// Why a quantity could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseUnitError {
    /// No number in front of the suffix.
    #[error("'{0}' does not begin with a number; write it as in {1}")]
    Number(String, &'static str),
    /// The suffix is none of the known ones.
    #[error("'{0}': unknown unit '{1}'; write it as in {2}")]
    Suffix(String, String, &'static str),
    /// Larger than 64 bits hold, or not finite.
    #[error("'{0}' is too large")]
    TooLarge(String),
}

/// Reads `text` as a non-negative decimal number times the factor that `suffixes` gives for what
/// follows it (compared without regard to case). `example` is shown in errors.
pub(crate) fn quantity(
    text: &str,
    suffixes: &[(&str, f64)],
    example: &'static str,
) -> Result<u64, ParseUnitError> {
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, suffix) = trimmed.split_at(split);
    let number: f64 =
        number.parse().map_err(|_| ParseUnitError::Number(text.to_owned(), example))?;
    let suffix = suffix.trim();
    let factor = suffixes
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(suffix))
        .map(|&(_, factor)| factor)
        .ok_or_else(|| ParseUnitError::Suffix(text.to_owned(), suffix.to_owned(), example))?;
    let value = number * factor;
    if value >= u64::MAX as f64 {
        return Err(ParseUnitError::TooLarge(text.to_owned()));
    }
    Ok(value.round() as u64)
}
