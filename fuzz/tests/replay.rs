//! Inputs that once broke something, and those that the fuzzer begins with, pass.

use std::path::Path;

#[test]
fn first_inputs_pass() {
    for target in fuzz::TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} begins with nothing", target.name);
        seeds.iter().for_each(|seed| (target.run)(seed));
    }
}

#[test]
fn what_once_broke_something_passes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    for folder in std::fs::read_dir(root).into_iter().flatten().flatten() {
        let name = folder.file_name().into_string().unwrap();
        let Some(target) = fuzz::target(&name) else {
            panic!("regressions/{name} belongs to no target");
        };
        for input in std::fs::read_dir(folder.path()).unwrap() {
            let path = input.unwrap().path();
            eprintln!("{}", path.display());
            (target.run)(&std::fs::read(path).unwrap());
        }
    }
}
