//! Directed graphs: strongly connected components by Tarjan's algorithm, without recursion, and short cycles in them.

use std::collections::VecDeque;

/// A graph over the numbers `0..node_count`; edges carry a label.
#[derive(Debug, Clone)]
pub struct Graph<L> {
    edges: Vec<Vec<(usize, L)>>,
}

impl<L: Copy> Graph<L> {
    /// A graph without edges.
    pub fn new(node_count: usize) -> Graph<L> {
        Graph { edges: (0..node_count).map(|_| Vec::new()).collect() }
    }

    /// Adds an edge; one from a node to itself is left out.
    pub fn add(&mut self, from: usize, to: usize, label: L) {
        if from != to {
            self.edges[from].push((to, label));
        }
    }

    /// How many edges there are.
    pub fn edge_count(&self) -> usize {
        self.edges.iter().map(Vec::len).sum()
    }

    /// The components with more than one node: each has a cycle, and each cycle lies in one (Tarjan 1972).
    pub fn knots(&self) -> Vec<Vec<usize>> {
        const UNSEEN: usize = usize::MAX;
        let count = self.edges.len();
        let (mut index, mut low, mut on_stack) = (vec![UNSEEN; count], vec![0; count], vec![false; count]);
        let (mut stack, mut knots, mut next) = (Vec::new(), Vec::new(), 0);
        // (node, how many of its edges have been followed)
        let mut path: Vec<(usize, usize)> = Vec::new();
        for root in 0..count {
            if index[root] != UNSEEN {
                continue;
            }
            path.push((root, 0));
            while let Some((node, followed)) = path.pop() {
                if followed == 0 {
                    index[node] = next;
                    low[node] = next;
                    next += 1;
                    stack.push(node);
                    on_stack[node] = true;
                } else {
                    // Back from the edge before.
                    let child = self.edges[node][followed - 1].0;
                    if on_stack[child] {
                        low[node] = low[node].min(low[child]);
                    }
                }
                let mut edge = followed;
                let mut descends = false;
                while let Some(&(child, _)) = self.edges[node].get(edge) {
                    edge += 1;
                    if index[child] == UNSEEN {
                        path.push((node, edge));
                        path.push((child, 0));
                        descends = true;
                        break;
                    }
                    if on_stack[child] {
                        low[node] = low[node].min(index[child]);
                    }
                }
                if descends || low[node] != index[node] {
                    continue;
                }
                let mut knot = Vec::new();
                while let Some(member) = stack.pop() {
                    on_stack[member] = false;
                    knot.push(member);
                    if member == node {
                        break;
                    }
                }
                if knot.len() > 1 {
                    knot.sort_unstable();
                    knots.push(knot);
                }
            }
        }
        knots
    }

    /// A shortest cycle through the nodes of a knot, as edges (from, label, to).
    pub fn short_cycle(&self, knot: &[usize]) -> Vec<(usize, L, usize)> {
        let mut best: Vec<(usize, L, usize)> = Vec::new();
        // From some of the nodes: a report does not need the very shortest of a large knot.
        for &start in knot.iter().take(200) {
            let found = self.cycle_through(start, knot);
            if !found.is_empty() && (best.is_empty() || found.len() < best.len()) {
                best = found;
            }
        }
        best
    }

    fn cycle_through(&self, start: usize, knot: &[usize]) -> Vec<(usize, L, usize)> {
        let mut reached_by: std::collections::BTreeMap<usize, (usize, L)> = Default::default();
        let mut queue = VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            for &(next, label) in &self.edges[node] {
                if knot.binary_search(&next).is_err() || reached_by.contains_key(&next) {
                    continue;
                }
                reached_by.insert(next, (node, label));
                if next == start {
                    let mut cycle = Vec::new();
                    let mut at = start;
                    loop {
                        let (from, label) = reached_by[&at];
                        cycle.push((from, label, at));
                        at = from;
                        if at == start {
                            break;
                        }
                    }
                    cycle.reverse();
                    return cycle;
                }
                queue.push_back(next);
            }
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(usize, usize)]) -> Graph<()> {
        let count = edges.iter().map(|(from, to)| from.max(to) + 1).max().unwrap_or(0);
        let mut graph = Graph::new(count);
        edges.iter().for_each(|(from, to)| graph.add(*from, *to, ()));
        graph
    }

    #[test]
    fn knots_are_the_components_with_cycles() {
        assert_eq!(graph(&[(0, 1), (1, 2), (0, 2)]).knots(), Vec::<Vec<usize>>::new());
        let mut knots = graph(&[(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 3), (5, 3), (1, 1)]).knots();
        knots.sort();
        assert_eq!(knots, [vec![0, 1, 2], vec![3, 4]]);
    }

    #[test]
    fn a_long_path_needs_no_deep_stack() {
        let mut edges: Vec<(usize, usize)> = (0..200_000).map(|node| (node, node + 1)).collect();
        assert!(graph(&edges).knots().is_empty());
        edges.push((200_000, 0));
        assert_eq!(graph(&edges).knots()[0].len(), 200_001);
    }

    #[test]
    fn the_cycle_that_is_shown_is_a_short_one() {
        let graph = graph(&[(0, 1), (1, 2), (2, 3), (3, 0), (2, 1)]);
        let cycle = graph.short_cycle(&graph.knots()[0]);
        assert_eq!(cycle.iter().map(|(from, (), to)| (*from, *to)).collect::<Vec<_>>(), [(1, 2), (2, 1)]);
    }

    #[test]
    fn knots_equal_mutual_reachability_on_random_graphs() {
        let mut random = ledgerstone_region::Random::new(5);
        for _ in 0..300 {
            let count = random.between(2, 9) as usize;
            let edges: Vec<(usize, usize)> = (0..random.between(1, 16))
                .map(|_| (random.below(count as u64) as usize, random.below(count as u64) as usize))
                .collect();
            let mut reach = vec![vec![false; count]; count];
            edges.iter().for_each(|&(from, to)| reach[from][to] = true);
            for via in 0..count {
                for from in 0..count {
                    for to in 0..count {
                        reach[from][to] |= reach[from][via] && reach[via][to];
                    }
                }
            }
            let mut knots = graph(&edges).knots();
            knots.sort();
            let mut expected: Vec<Vec<usize>> = (0..count)
                .map(|a| (0..count).filter(|&b| a == b || reach[a][b] && reach[b][a]).collect::<Vec<usize>>())
                .filter(|knot| knot.len() > 1)
                .collect();
            expected.sort();
            expected.dedup();
            assert_eq!(knots, expected, "{edges:?}");
        }
    }
}
