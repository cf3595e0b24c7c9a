//! The files of the repository that people write, and their tokens.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use walkdir::{DirEntry, WalkDir};

/// What people write beside prose.
const EXTENSIONS: &[&str] = &["rs", "toml", "sh", "yml"];

/// Hidden folders that belong to the project all the same.
const HIDDEN: &[&str] = &[".cargo", ".ci", ".github"];

/// One file.
pub struct Source {
    /// From the root of the repository.
    pub path: String,
    pub text: String,
    /// Empty unless the file is Rust.
    pub tokens: Vec<Token>,
}

/// One token, the delimiters of groups included; comments have gone, literals keep their quotes.
pub struct Token {
    pub text: String,
    /// Counted from 1.
    pub line: usize,
}

impl Source {
    pub fn new(path: &str, text: String) -> Result<Self> {
        let mut tokens = Vec::new();
        if path.ends_with(".rs") {
            let stream: TokenStream =
                text.parse().map_err(|error| anyhow::anyhow!("{path} is not Rust: {error}"))?;
            flatten(stream, &mut tokens);
        }
        Ok(Self { path: path.to_owned(), text, tokens })
    }

    /// Where `sequence` begins among the tokens.
    pub fn find(&self, sequence: &[&str]) -> impl Iterator<Item = usize> {
        (0..self.tokens.len()).filter(|&at| self.has(at, sequence))
    }

    /// Whether `sequence` stands at this token.
    pub fn has(&self, at: usize, sequence: &[&str]) -> bool {
        let here = self.tokens.get(at..at + sequence.len());
        here.is_some_and(|here| here.iter().map(|token| &token.text).eq(sequence))
    }

    /// The group that opens at this token, both delimiters included.
    pub fn group(&self, open: usize) -> Range<usize> {
        let mut depth = 0;
        for (at, token) in self.tokens.iter().enumerate().skip(open) {
            match token.text.as_str() {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return open..at + 1;
            }
        }
        open..self.tokens.len()
    }
}

/// Every source of the repository, in the order of their paths.
pub fn all() -> Result<Vec<Source>> {
    let walk = WalkDir::new(".").sort_by_file_name().into_iter().filter_entry(is_ours);
    let mut sources = Vec::new();
    for entry in walk {
        let entry = entry?;
        if entry.file_type().is_file() && is_source(entry.path()) {
            let path = entry.path().strip_prefix(".")?.to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
            sources.push(Source::new(&path, text)?);
        }
    }
    Ok(sources)
}

fn is_ours(entry: &DirEntry) -> bool {
    let name = entry.file_name().to_string_lossy();
    let hidden = entry.depth() > 0 && name.starts_with('.') && !HIDDEN.contains(&name.as_ref());
    let built = entry.file_type().is_dir() && name == "target";
    !hidden && !built
}

fn is_source(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| EXTENSIONS.contains(&extension)) || path.ends_with(".ci/run")
}

fn flatten(stream: TokenStream, into: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                into.push(Token { text: open.to_owned(), line });
                flatten(group.stream(), into);
                let line = group.span_close().start().line;
                into.push(Token { text: close.to_owned(), line });
            }
            other => into.push(Token { text: other.to_string(), line }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_know_their_line_and_comments_and_strings_are_none() {
        let text = "// f()\nfn f() {\n    \"f()\";\n}\n";
        let source = Source::new("a.rs", text.to_owned()).unwrap();
        let found: Vec<_> =
            source.find(&["f", "(", ")"]).map(|at| source.tokens[at].line).collect();
        assert_eq!(found, [2]);
        let body = source.group(4);
        assert_eq!(source.tokens[body.end - 1].line, 4);
    }

    #[test]
    fn a_file_that_is_not_rust_is_named() {
        let error = Source::new("a.rs", "fn f( {".to_owned()).err().unwrap();
        assert!(error.to_string().starts_with("a.rs is not Rust"));
    }
}
