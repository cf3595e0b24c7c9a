//! Memory for what clients tell of their files: no client has so much of it that others lack it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use transfer::Budget;

use super::turns::Who;

/// Who has which part of it.
#[derive(Default)]
pub struct Memory {
    all: Budget,
    each: Mutex<HashMap<Who, Budget>>,
}

impl Memory {
    /// The part of one client, the same for all requests that it has at a time.
    pub fn of(&self, who: Who) -> Budget {
        let mut each = self.each.lock().unwrap_or_else(PoisonError::into_inner);
        each.retain(|_, budget| budget.is_shared());
        each.entry(who).or_insert_with(|| self.all.half()).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_one_client_share_a_part_and_who_has_none_is_forgotten() {
        let memory = Memory::default();
        let [one, other] = [1, 2].map(|last| Who::Host([127, 0, 0, last].into()));
        let budget = memory.of(one);
        drop(memory.of(other));
        let again = memory.of(one);
        assert_eq!(memory.each.lock().unwrap().len(), 1);
        drop(budget);
        assert!(again.is_shared(), "it is the same");
        drop(again);
        drop(memory.of(other));
        assert_eq!(memory.each.lock().unwrap().len(), 1);
        assert!(memory.each.lock().unwrap().contains_key(&other));
    }
}
