//! Every order in which the steps of some sessions can come, and what the contract says to each.
//!
//! A spec of PostgreSQL's isolationtester lists the orders ("permutations") in which its steps are
//! run. Not every order can happen: a session that waits for a key takes no step until the key is
//! free. So the orders come from a [`model`] of the contract, which knows who waits for whom, and
//! which says what each step is answered. The model shares no code with the extension.

pub mod model;
pub mod report;
pub mod spec;

use model::World;
use spec::Spec;

/// One order of steps and what comes of it.
pub struct Interleaving {
    /// The names of the steps, in the order in which they are sent.
    pub steps: Vec<String>,
    /// How it ends, and all that was said.
    pub world: World,
}

/// Every order in which the steps of `spec` can come. Of sessions that are alike but for their names,
/// the first begins first: the other orders would show the same under other names.
pub fn all(spec: &Spec) -> Vec<Interleaving> {
    let mut found = Vec::new();
    let start = State { world: World::new(spec), taken: vec![0; spec.sessions.len()] };
    extend(spec, &start, &mut Vec::new(), &mut found);
    found
}

#[derive(Clone)]
struct State {
    world: World,
    /// How many steps each session has taken.
    taken: Vec<usize>,
}

fn extend(spec: &Spec, state: &State, steps: &mut Vec<String>, found: &mut Vec<Interleaving>) {
    let mut is_end = true;
    for (at, session) in spec.sessions.iter().enumerate() {
        let Some(step) = session.steps.get(state.taken[at]) else { continue };
        is_end = false;
        let earlier = spec.sessions[..at].iter().zip(&state.taken);
        let out_of_turn =
            earlier.filter(|(other, _)| other.is_like(session)).any(|(_, &taken)| taken == 0);
        if out_of_turn || state.world.is_waiting(at) {
            continue;
        }
        let mut next = state.clone();
        if next.world.take(at, &step.acts) {
            next.taken[at] += 1;
            steps.push(step.name.clone());
            extend(spec, &next, steps, found);
            steps.pop();
        }
    }
    if is_end {
        found.push(Interleaving { steps: steps.clone(), world: state.world.clone() });
    }
}
