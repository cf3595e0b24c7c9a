//! Prints the test vectors of `docs/spec/transport.md`:
//! `cargo run -p longhaul-transport --example vectors > crates/transport/tests/vectors.txt`

#[path = "../tests/vectors/make.rs"]
mod make;

fn main() {
    print!("{}", make::vectors());
}
