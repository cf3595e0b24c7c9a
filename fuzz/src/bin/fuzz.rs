//! LLVM's libFuzzer over one target, named by the environment.
#![no_main]
#![forbid(unsafe_code)]

use std::sync::LazyLock;

use fuzz::Target;
use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var(fuzz::CHOICE).unwrap_or_default();
    fuzz::target(&name).unwrap_or_else(|| panic!("{} names no target: '{name}'", fuzz::CHOICE))
});

fuzz_target!(|input: &[u8]| (TARGET.run)(input));
