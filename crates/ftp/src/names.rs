//! Paths as a client names them: below the root it sees, from the directory it stands in.

use transfer::{PathError, RelPath};

/// The ending of what is not whole yet; the rest of such a name is a dot and the name it is for.
pub const PARTIAL_ENDING: &str = ".longhaul.part";

/// Takes a typed path: absolute from the root, or relative to `here`. `..` goes up, and stays at
/// the root there, so no path leads out.
///
/// # Errors
/// [`PathError`] when it is too long or holds a zero byte.
pub fn resolve(here: &RelPath, typed: &[u8]) -> Result<RelPath, PathError> {
    let from: &[u8] = if typed.starts_with(b"/") { b"" } else { here.as_bytes() };
    let mut names: Vec<&[u8]> = Vec::new();
    for name in from.split(|&byte| byte == b'/').chain(typed.split(|&byte| byte == b'/')) {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    RelPath::new(names.join(&b'/'))
}

/// A path as the client sees it: from `/`.
pub fn seen(path: &RelPath) -> Vec<u8> {
    [b"/", path.as_bytes()].concat()
}

/// The same, to be shown.
pub fn show(path: &RelPath) -> String {
    String::from_utf8_lossy(&seen(path)).into_owned()
}

/// In quotation marks, those in it doubled (RFC 959, appendix II), and what follows.
pub fn quoted(path: &RelPath, rest: &str) -> Vec<u8> {
    let path = seen(path);
    let doubled =
        path.iter().flat_map(|&byte| std::iter::repeat_n(byte, 1 + usize::from(byte == b'"')));
    let marked = std::iter::once(b'"').chain(doubled).chain([b'"']);
    marked.chain(rest.bytes()).collect()
}

/// Whether a name is one that is made for what is not whole yet, be it the journal of another copy: such are neither
/// shown nor taken.
pub fn is_partial(name: &[u8]) -> bool {
    is_kept(name) || transfer::is_temporary(name)
}

/// Whether a name is one under which the part of a file is kept that was cut.
pub fn is_kept(name: &[u8]) -> bool {
    name.starts_with(b".") && name.ends_with(PARTIAL_ENDING.as_bytes())
}

/// Whether any name of a path is made for what is not whole yet.
pub fn has_partial(path: &RelPath) -> bool {
    path.as_bytes().split(|&byte| byte == b'/').any(is_partial)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(here: &str, typed: &str) -> String {
        let here = RelPath::new(here.into()).unwrap();
        show(&resolve(&here, typed.as_bytes()).unwrap())
    }

    #[test]
    fn no_path_leads_above_the_root() {
        assert_eq!(resolved("a/b", "c"), "/a/b/c");
        assert_eq!(resolved("a/b", "../../../../etc/./passwd"), "/etc/passwd");
        assert_eq!(resolved("a/b", "/../.."), "/");
        assert_eq!(resolved("a/b", "//x//y/"), "/x/y");
        assert_eq!(resolve(&RelPath::default(), b"a\0b"), Err(PathError::Unclean));
    }

    #[test]
    fn quotation_marks_are_doubled() {
        let path = RelPath::new(b"a\"\xffb".to_vec()).unwrap();
        assert_eq!(quoted(&path, " made"), b"\"/a\"\"\xffb\" made");
    }

    #[test]
    fn names_of_what_is_not_whole_are_known() {
        assert!(is_partial(b".big.iso.longhaul.part"));
        assert!(is_partial(b".big.iso.longhaul-0123456789abcdef0.part"));
        let journal = |digits| [".longhaul-", &"0".repeat(digits), ".journal"].concat();
        assert!(is_partial(journal(32).as_bytes()) && !is_partial(journal(31).as_bytes()));
        assert!(!is_partial(b"big.longhaul.part") && !is_partial(b".profile"));
        assert!(!is_partial(b".of longhaul-2.part"), "it is the user's");
        assert!(is_kept(b".big.iso.longhaul.part"));
        assert!(!is_kept(b".big.iso.longhaul-0123456789abcdef0.part"));
        assert!(has_partial(&RelPath::new(b"a/.x.longhaul.part/b".to_vec()).unwrap()));
    }
}
