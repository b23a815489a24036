//! URLs that name a backend, and their parameters.
//!
//! `scheme:rest?name=value&name=value`. What `rest` means is the backend's business (a path,
//! one host, several hosts). No part of a URL but its scheme and the names of its parameters
//! ever reaches a message: the rest may hold a password.

mod authority;
mod tls;

use std::fmt;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use crate::error::{Error, Result};

pub use authority::{Address, Authority};
pub use tls::TlsFiles;

/// A URL, taken apart.
#[derive(Clone, PartialEq, Eq)]
pub struct ConnectUrl {
    scheme: String,
    rest: String,
    params: Params,
}

impl ConnectUrl {
    /// Takes `url` apart.
    ///
    /// # Errors
    /// [`Error::Configuration`] if there is no scheme, if the URL holds a raw `#` (write `%23`) or
    /// seems to hold a raw `?` in its password (`%3F`), if a percent sign is not followed by two
    /// hexadecimal digits, if a parameter's name is no word, or if one is named twice.
    pub fn parse(url: &str) -> Result<Self> {
        let Some((scheme, rest)) = url.split_once(':') else {
            return Err(Error::configuration(
                "the URL has no scheme; write for example `sqlite:locks.db` or `memory:`",
            ));
        };
        let valid = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
        if !valid {
            return Err(Error::configuration(
                "the URL does not begin with a scheme; write for example `sqlite:locks.db`",
            ));
        }
        if rest.contains('#') {
            return Err(Error::configuration("the URL holds a raw `#`; write it as `%23`"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        if rest.starts_with("//") && !rest.contains('@') && query.contains('@') {
            return Err(Error::configuration(
                "the URL has an `@` behind its `?`; write a `?` in a password as `%3F`, and an `@` \
                 in a parameter as `%40`",
            ));
        }
        Ok(Self {
            scheme: scheme.to_ascii_lowercase(),
            rest: rest.to_owned(),
            params: Params::parse(query)?,
        })
    }

    /// The scheme, in lower case.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// What stands between the scheme's colon and the question mark, still percent-encoded.
    pub fn rest(&self) -> &str {
        &self.rest
    }

    /// The parameters, to be taken one by one.
    pub fn into_params(self) -> Params {
        self.params
    }
}

impl fmt::Debug for ConnectUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectUrl({}:…, {:?})", self.scheme, self.params)
    }
}

/// Decodes `%XX` in one part of a URL; `what` names the part in the error.
///
/// # Errors
/// [`Error::Configuration`] if a percent sign is not followed by two hexadecimal digits, or if
/// the bytes are not UTF-8.
pub fn decode(what: &str, text: &str) -> Result<String> {
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let complete =
            byte != b'%' || (0..2).all(|_| rest.next().is_some_and(|b| b.is_ascii_hexdigit()));
        if !complete {
            return Err(Error::configuration(format!(
                "{what} holds a `%` without two hexadecimal digits; write a percent sign as `%25`"
            )));
        }
    }
    percent_decode_str(text)
        .decode_utf8()
        .map(std::borrow::Cow::into_owned)
        .map_err(|_| Error::configuration(format!("{what} is not UTF-8 after decoding")))
}

/// The parameters of a URL. Take those that are known, then call [`Params::finish`].
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Params {
    given: Vec<(String, String)>,
    known: Vec<&'static str>,
}

impl Params {
    fn parse(query: &str) -> Result<Self> {
        let mut given: Vec<(String, String)> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode("a parameter's name", name)?;
            let value = decode("a parameter's value", value)?;
            // Anything else may be the rest of a password with a raw `?` or `&` in it.
            if !name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)) {
                return Err(Error::configuration(
                    "what stands behind the `?` of the URL is no `name=value`; in a password or a \
                     value, write a `?` as `%3F` and an `&` as `%26`",
                ));
            }
            if given.iter().any(|(n, _)| *n == name) {
                return Err(Error::configuration(format!("the parameter `{name}` is given twice")));
            }
            given.push((name, value));
        }
        Ok(Self { given, known: Vec::new() })
    }

    /// Takes a parameter's value.
    ///
    /// # Errors
    /// [`Error::Configuration`] if it is there but empty.
    pub fn text(&mut self, name: &'static str) -> Result<Option<String>> {
        let value = self.text_or_empty(name);
        if value.as_deref() == Some("") {
            return Err(Error::configuration(format!("the parameter `{name}` is empty")));
        }
        Ok(value)
    }

    /// Takes a parameter's value that may be empty: `name=` says something else than nothing.
    pub fn text_or_empty(&mut self, name: &'static str) -> Option<String> {
        self.known.push(name);
        let at = self.given.iter().position(|(n, _)| n == name)?;
        Some(self.given.remove(at).1)
    }

    /// Takes a duration: a number with a unit, as in `30s`, `500ms` or `1m 30s`.
    ///
    /// # Errors
    /// [`Error::Configuration`] if the value is something else.
    pub fn duration(&mut self, name: &'static str) -> Result<Option<Duration>> {
        self.text(name)?.map(|text| Self::parse_duration(name, &text)).transpose()
    }

    /// Reads a duration as [`Params::duration`] does.
    ///
    /// # Errors
    /// [`Error::Configuration`] if `text` is no duration.
    pub fn parse_duration(name: &str, text: &str) -> Result<Duration> {
        humantime::parse_duration(text).map_err(|e| {
            Error::configuration(format!(
                "`{name}` is not a duration such as `30s`, `500ms` or `1m 30s`"
            ))
            .with_source(e)
        })
    }

    /// Takes a whole number within `range`.
    ///
    /// # Errors
    /// [`Error::Configuration`] if the value is something else.
    pub fn number(
        &mut self,
        name: &'static str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<Option<u64>> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        text.parse().ok().filter(|n| range.contains(n)).map(Some).ok_or_else(|| {
            Error::configuration(format!(
                "`{name}` must be a whole number from {} to {}",
                range.start(),
                range.end()
            ))
        })
    }

    /// Takes `true` or `false`.
    ///
    /// # Errors
    /// [`Error::Configuration`] if the value is something else.
    pub fn flag(&mut self, name: &'static str) -> Result<Option<bool>> {
        self.choice(name, &[("true", true), ("false", false)])
    }

    /// Takes one of several words.
    ///
    /// # Errors
    /// [`Error::Configuration`] if the value is none of them.
    pub fn choice<T: Copy>(
        &mut self,
        name: &'static str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let found = choices.iter().find(|(word, _)| *word == text);
        found.map(|(_, value)| Some(*value)).ok_or_else(|| {
            let words: Vec<_> = choices.iter().map(|(word, _)| format!("`{word}`")).collect();
            Error::configuration(format!("`{name}` must be one of {}", words.join(", ")))
        })
    }

    /// Refuses whatever was not taken.
    ///
    /// # Errors
    /// [`Error::Configuration`] that names the first unknown parameter and lists the known ones.
    pub fn finish(mut self, backend: &str) -> Result<()> {
        let Some((name, _)) = self.given.first() else { return Ok(()) };
        self.known.sort_unstable();
        let known: Vec<_> = self.known.iter().map(|name| format!("`{name}`")).collect();
        Err(Error::configuration(format!(
            "`{backend}:` has no parameter `{}`; it knows {}",
            name,
            if known.is_empty() { "none".to_owned() } else { known.join(", ") }
        )))
    }
}

impl fmt::Debug for Params {
    /// Names only: a value may be a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.given.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn params(url: &str) -> Params {
        ConnectUrl::parse(url).unwrap().into_params()
    }

    #[test]
    fn parts() {
        let url = ConnectUrl::parse("SQLite:a b/%C3%A9.db?ttl=5s&x=%26").unwrap();
        assert_eq!((url.scheme(), url.rest()), ("sqlite", "a b/%C3%A9.db"));
        let mut p = url.into_params();
        assert_eq!(p.duration("ttl").unwrap(), Some(Duration::from_secs(5)));
        assert_eq!(p.text("x").unwrap().as_deref(), Some("&"));
        p.finish("sqlite").unwrap();
    }

    #[test]
    fn wrong_urls_say_what_is_right() {
        for (url, hint) in [
            ("locks.db", "has no scheme"),
            ("", "has no scheme"),
            (":x", "begin with a scheme"),
            ("/a:b", "begin with a scheme"),
            ("redis://:pw#1@h", "%23"),
            ("sqlite:x?a=%zz", "%25"),
            ("sqlite:x?a=1&a=2", "given twice"),
            ("redis://u:12?secret@h/0", "%3F"),
            ("redis://u:12?secret=@h/0", "%3F"),
            ("redis://u:12&se?cret%40h/0", "%3F"),
            ("sqlite:x?a b=1", "%26"),
        ] {
            let error = ConnectUrl::parse(url).unwrap_err().to_string();
            assert!(error.contains(hint), "{url}: {error}");
            assert!(!error.contains("cret"), "{url}: {error}");
        }
    }

    #[test]
    fn unknown_parameters_list_the_known_ones() {
        let mut p = params("sqlite:x?tll=5s");
        p.text("ttl").unwrap();
        p.flag("migrate").unwrap();
        let error = p.finish("sqlite").unwrap_err().to_string();
        assert!(error.contains("`tll`") && error.contains("`migrate`, `ttl`"), "{error}");
    }

    #[test]
    fn values_are_checked() {
        assert!(params("m:?ttl=5").duration("ttl").is_err());
        assert!(params("m:?ttl=-5s").duration("ttl").is_err());
        assert!(params("m:?ttl=").duration("ttl").is_err());
        assert!(params("m:?n=11").number("n", 1..=10).is_err());
        assert!(params("m:?f=yes").flag("f").is_err());
    }

    #[test]
    fn debug_hides_values() {
        let url = ConnectUrl::parse("redis://user:s3cret@h?password=s3cret").unwrap();
        assert!(!format!("{url:?}").contains("s3cret"));
        assert!(!format!("{:?}", url.into_params()).contains("s3cret"));
    }

    proptest! {
        #[test]
        fn any_text_parses_or_is_refused_without_a_panic(text in any::<String>()) {
            if let Ok(url) = ConnectUrl::parse(&text) {
                let _ = decode("rest", url.rest());
                let mut p = url.into_params();
                let _ = p.duration("ttl");
                let _ = p.finish("x");
            }
        }

        #[test]
        fn encoded_values_come_back(value in "\\PC+") {
            let encoded = crate::encoding::encode(&value);
            let mut p = params(&format!("x:?v={encoded}"));
            let read = p.text("v").unwrap();
            prop_assert_eq!(read.as_deref(), Some(value.as_str()));
        }
    }
}
