//! `longhaul sync`, `ls`, and the patterns of `cp`, by the real binary.

mod support;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use support::{Home, fingerprint, plant, text};

fn last(said: &[u8]) -> serde_json::Value {
    serde_json::from_str(text(said).lines().last().unwrap()).unwrap()
}

#[test]
fn both_directions_come_to_rest() {
    let home = Home::new();
    plant(&home.folder("tree"));
    let server = home.serve(&[]);
    let there = server.url("there");
    for (from, to) in [("tree", &there[..]), (&there, "back")] {
        home.succeed(&["sync", "--delete", from, to]);
        let done = last(&home.succeed(&["sync", "--json", "--delete", from, to]).stdout);
        assert_eq!((&done["kept_files"], &done["removed"]), (&done["files"], &0.into()), "{done}");
    }
    let expected = fingerprint(&home.path("tree"));
    assert_eq!(fingerprint(&home.path("root/there")), expected);
    assert_eq!(fingerprint(&home.path("back")), expected);
    let done = last(&home.succeed(&["sync", "--json", "--verify-only", "tree", &there]).stdout);
    assert!(done["verified"] == true && done["would"] == 0, "{done}");
}

#[test]
fn a_dry_run_and_a_comparison_tell_and_touch_nothing() {
    let home = Home::new();
    for name in ["same", "changed", "new"] {
        fs::write(home.folder("tree").join(name), name).unwrap();
    }
    let server = home.serve(&[]);
    let there = server.url("there");
    home.succeed(&["sync", "tree", &there]);
    fs::write(home.path("root/there/changed"), "CHANGED").unwrap();
    fs::remove_file(home.path("root/there/new")).unwrap();
    fs::write(home.path("root/there/extra"), "extra").unwrap();
    let before = fingerprint(&home.path("root/there"));

    let said = text(&home.succeed(&["sync", "-n", "--delete", "tree", &there]).stderr);
    for word in ["\"changed\": would be changed", "\"new\": would be copied", "would be removed"] {
        assert!(said.contains(word), "{said}");
    }
    assert!(said.contains("nothing was changed") && !said.contains("\"same\""), "{said}");
    let said = home.fail(1, &["sync", "--verify-only", "tree", &there]);
    assert!(
        said.contains("1 file is equal") && said.contains("at the destination alone"),
        "{said}"
    );
    assert_eq!(fingerprint(&home.path("root/there")), before);
    for options in [&["-n", "--delete"][..], &["--verify-only"]] {
        let output = home.run(&[&["sync", "--json"], options, &["tree", &there]].concat());
        let done = last(&output.stdout);
        assert_eq!((&done["verified"], &done["would"]), (&false.into(), &3.into()), "{done}");
        assert!(done["rate_bps"].is_null() && done["limited_by"].is_null(), "{done}");
        assert!(done["summary"].as_str().unwrap().contains("nothing was changed"), "{done}");
    }
    home.fail(2, &["sync", "--verify-only", "--delete", "tree", &there]);
    home.fail(2, &["sync", "-", &there]);
    home.fail(2, &["sync", "tree", "elsewhere"]);

    home.succeed(&["sync", "-c", "--delete", "tree", &there]);
    assert_eq!(fingerprint(&home.path("root/there")), fingerprint(&home.path("tree")));
}

#[test]
fn what_is_there_is_listed() {
    let home = Home::new();
    let server = home.serve(&[]);
    home.folder("root/tree/deep");
    fs::write(home.path("root/tree/deep/file"), "twelve bytes").unwrap();
    fs::write(home.path("root/tree/odd\nname"), "").unwrap();
    std::os::unix::fs::symlink("nowhere", home.path("root/tree/link")).unwrap();
    let tree = server.url("tree");
    for carrier in [&[][..], &["--transport", "tcp", "--streams", "2"]] {
        let listed = home.succeed(&[&["ls", &tree], carrier].concat());
        let lines = text(&listed.stdout);
        let names: Vec<&str> = lines.lines().filter_map(|line| line.get(30..)).collect();
        assert_eq!(names, ["deep/", "link -> nowhere", "odd\u{fffd}name"], "{lines}");
        let said = text(&listed.stderr);
        assert!(said.contains("1 file of 0 B, 1 directory and 1 link"), "{said}");
    }
    let all = text(&home.succeed(&["ls", "-R", "--json", "--exclude=odd*", &tree]).stdout);
    let all: Vec<serde_json::Value> =
        all.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let entries: Vec<_> = all.iter().filter(|one| one["event"] == "entry").collect();
    let named: Vec<_> = entries.iter().map(|one| one["path"].as_str().unwrap()).collect();
    assert_eq!(named, ["deep", "deep/file", "link"]);
    assert_eq!((&entries[1]["bytes"], &entries[1]["kind"]), (&12.into(), &"file".into()));
    let one = text(&home.succeed(&["ls", "-q", &server.url("tree/deep/file")]).stdout);
    assert!(one.trim_end().ends_with("12 B  file"), "{one}");
    assert!(home.fail(1, &["ls", &server.url("none")]).contains("none"));
    assert!(home.fail(2, &["ls", "tree"]).contains("another host"));
    assert!(home.fail(2, &["ls", "ftp://h/x"]).contains("longhaul ftp"));
    home.fail(2, &["ls", "--manifest", "x", &tree]);
}

#[test]
fn other_permissions_are_a_difference_of_a_directory_too() {
    let home = Home::new();
    for name in ["a", "b", "deep/c"] {
        home.folder("tree/deep");
        fs::write(home.path("tree").join(name), name).unwrap();
    }
    let server = home.serve(&[]);
    let there = server.url("there");
    home.succeed(&["sync", "tree", &there]);
    let verify = ["sync", "--verify-only", "tree", &there];
    let set = |name: &str, mode| {
        let path = home.path("root/there").join(name);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    ["a", "deep/c"].iter().for_each(|name| set(name, 0o600));
    let said = home.fail(1, &verify);
    assert!(said.contains("1 file is equal; 2 are not; nothing"), "{said}");
    home.succeed(&["sync", "tree", &there]);
    set("deep", 0o700);
    let said = home.fail(1, &verify);
    assert!(said.contains("\"deep\": would be changed") && said.contains("3 files are"), "{said}");
    home.succeed(&["sync", "tree", &there]);
    home.succeed(&verify);
}

#[test]
fn patterns_are_for_copies_too() {
    let home = Home::new();
    for name in ["a.c", "a.o", "keep.o"] {
        fs::write(home.folder("tree").join(name), name).unwrap();
    }
    let server = home.serve(&[]);
    let there = server.url("there");
    let patterns = ["--exclude", "*.o", "--include", "keep.o"];
    home.succeed(&[&["cp", "tree", &there], &patterns[..]].concat());
    home.succeed(&[&["cp", &there, "back"], &patterns[..]].concat());
    for top in ["root/there", "back"] {
        let mut names = support::names(&home.path(top));
        names.sort();
        assert_eq!(names, ["a.c", "keep.o"]);
    }
    home.fail(2, &["cp", "--include", "x", "tree", &there]);
}

#[test]
fn a_manifest_is_one_that_b3sum_checks() {
    let name = "a_manifest_is_one_that_b3sum_checks";
    if Command::new("b3sum").arg("--version").output().is_err() {
        return support::skip(name, "there is no b3sum");
    }
    let home = Home::new();
    plant(&home.folder("tree"));
    // Which b3sum cannot be told.
    fs::remove_file(home.path("tree").join(OsStr::from_bytes(b"\xff\xfe"))).unwrap();
    let server = home.serve(&[]);
    let there = server.url("there");
    let check = |folder: &str, manifest: &str, fails: bool| {
        let mut b3sum = Command::new("b3sum");
        b3sum.args(["--check", "--quiet"]).arg(home.path(manifest)).current_dir(home.path(folder));
        let checked = support::finish(support::start(&mut b3sum));
        assert_eq!(checked.status.success(), !fails, "{}", text(&checked.stderr));
    };
    home.succeed(&["cp", "--manifest", "sent", "tree", &there]);
    check("", "sent", false);
    home.succeed(&["sync", "--manifest", "stood", "tree", &there]);
    check("root/there", "stood", false);
    home.succeed(&["sync", "--manifest", "came", &there, "back"]);
    check("back", "came", false);
    assert_eq!(fs::read(home.path("stood")).unwrap(), fs::read(home.path("came")).unwrap());
    fs::write(home.path("back/deep/er/odd"), "other").unwrap();
    check("back", "came", true);
    for wrong in [&["-n"][..], &["--verify-only"]] {
        home.fail(2, &[&["sync", "--manifest", "m", "tree", &there], wrong].concat());
    }
    home.fail(2, &["cp", "--manifest", "m", &server.url("there/one"), "-"]);
    let said = home.fail(1, &["cp", "--manifest", "no/place", "tree", "lh://no.such.host/"]);
    assert!(said.contains("cannot write the manifest no/place"), "{said}");
}
