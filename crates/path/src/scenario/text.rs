//! Values in scenario files: spelled as on the command line.

use core::fmt;
use core::marker::PhantomData;
use core::str::FromStr;
use core::time::Duration;

use serde::Deserializer;
use serde::de::{Error, Visitor};

use crate::spelling;

/// Reads a string or a bare number as a `T`.
pub fn text<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: fmt::Display>,
{
    from.deserialize_any(Spelled(str::parse::<T>, PhantomData)).map(Some)
}

/// Reads a time, as in `"50ms"`.
pub fn time<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: From<Duration>,
{
    from.deserialize_any(Spelled(spelling::time, PhantomData)).map(T::from)
}

/// Reads a probability: `0.01` or `"1%"`.
pub fn share<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    from.deserialize_any(Spelled(spelling::share, PhantomData)).map(Some)
}

struct Spelled<F, T>(F, PhantomData<T>);

impl<F, T, E> Visitor<'_> for Spelled<F, T>
where
    F: Fn(&str) -> Result<T, E>,
    E: fmt::Display,
{
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or a number")
    }

    fn visit_str<R: Error>(self, text: &str) -> Result<T, R> {
        self.0(text).map_err(R::custom)
    }

    fn visit_i64<R: Error>(self, number: i64) -> Result<T, R> {
        self.visit_str(&number.to_string())
    }

    fn visit_u64<R: Error>(self, number: u64) -> Result<T, R> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<R: Error>(self, number: f64) -> Result<T, R> {
        self.visit_str(&number.to_string())
    }
}
