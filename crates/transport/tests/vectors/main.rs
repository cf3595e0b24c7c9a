//! The test vectors of the specification are what this code makes of them.

mod make;

#[test]
fn the_vectors_of_the_specification_hold() {
    let kept = include_str!("../vectors.txt");
    for (line, (kept, made)) in kept.lines().zip(make::vectors().lines()).enumerate() {
        assert_eq!(kept, made, "line {}: the wire format has changed", line + 1);
    }
    assert_eq!(kept.lines().count(), make::vectors().lines().count());
}
