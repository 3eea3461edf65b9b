//! The pages of one transaction, chained by links (3, figure 3): each names the page written before it.
//!
//! Collection moves pages and takes some away, and with them go links: a chain falls apart into sub-chains. The *head*
//! of a sub-chain is the page that no other page of the transaction links to.

use crate::Lba;
use crate::ftl::spare::{Flag, Link, Meta, link_to};
use crate::nand::Pba;

/// A page that a transaction has written and that is still on flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Own {
    pub pba: Pba,
    pub sequence: u64,
    pub link: Link,
    pub flag: Flag,
    pub lba: Lba,
    pub version: u64,
}

impl Own {
    pub fn new(pba: Pba, meta: &Meta) -> Self {
        let Meta { sequence, link, flag, lba, version, .. } = *meta;
        Self { pba, sequence, link, flag, lba, version }
    }

    pub fn as_link(&self) -> Link {
        link_to(self.pba, self.sequence)
    }
}

/// Pages of a transaction in the order in which they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chain(pub Vec<Own>);

impl Chain {
    pub fn last(&self) -> Option<&Own> {
        self.0.last()
    }

    pub fn position(&self, pba: Pba) -> Option<usize> {
        self.0.iter().position(|own| own.pba == pba)
    }

    fn find(&self, link: Link) -> Option<usize> {
        self.0.iter().position(|own| own.as_link() == link)
    }

    /// Indexes of the heads.
    pub fn heads(&self) -> Vec<usize> {
        if self.is_unbroken() {
            return self.0.len().checked_sub(1).into_iter().collect();
        }
        let mut is_head = vec![true; self.0.len()];
        for own in &self.0 {
            if let Some(target) = self.find(own.link) {
                is_head[target] = false;
            }
        }
        (0..self.0.len()).filter(|&i| is_head[i]).collect()
    }

    /// Whether every page links to the one before it.
    fn is_unbroken(&self) -> bool {
        self.0.windows(2).all(|pair| pair[1].link == pair[0].as_link())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(pba: Pba, link: Link) -> Own {
        Own { pba, sequence: u64::from(pba) + 100, link, flag: Flag::Unset, lba: 0, version: 0 }
    }

    #[test]
    fn a_chain_that_lost_its_middle_has_two_heads() {
        let a = own(1, Link::NONE);
        let b = own(2, a.as_link());
        let c = own(3, b.as_link());
        assert_eq!(Chain(vec![a, b, c]).heads(), [2]);
        let broken = Chain(vec![a, c]);
        assert_eq!(broken.heads(), [0, 1]);
    }
}
