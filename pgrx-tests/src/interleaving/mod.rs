//! Every order in which the steps of some sessions can come, and what the contract says to each.
//!
//! A spec of PostgreSQL's isolationtester lists the orders ("permutations") in which its steps are
//! run. Not every order can happen: a session that waits for a key takes no step until the key is
//! free. So the orders come from a [`model`] of the contract, which knows who waits for whom, and
//! which says what the tester prints of each step. The model shares no code with the extension.

pub mod model;
pub mod report;
pub mod spec;

use model::World;
use spec::{Act, Session, Spec};

/// One order of steps and what comes of it.
pub struct Interleaving {
    /// The names of the steps, in the order in which they are sent.
    pub steps: Vec<String>,
    /// How it ends, and all that is printed on the way.
    pub world: World,
}

/// What became of every order.
#[derive(Default)]
pub struct Orders {
    /// Those that come to an end, with nobody waiting.
    pub finished: Vec<Interleaving>,
    /// How many were begun and get stuck: who could go on waits, or has a step that cannot come. What
    /// these would show, nobody is shown; so a spec has to say how many there are.
    pub cut: usize,
}

impl Orders {
    /// The steps, as `s1 w1`, that have an act which comes to nothing in every order, neither here nor in
    /// a session that is alike. A spec that has such steps says less than it seems to, so it has to name
    /// them.
    pub fn idle(&self, spec: &Spec) -> Vec<String> {
        let mut idle = Vec::new();
        for session in &spec.sessions {
            let comes_to = |act: &Act| self.comes_to(spec, session, act);
            let of_session = session.steps.iter().filter(|step| !step.acts.iter().all(comes_to));
            idle.extend(of_session.map(|step| format!("{} {}", session.name, step.name)));
        }
        idle
    }

    fn comes_to(&self, spec: &Spec, session: &Session, act: &Act) -> bool {
        let alike = spec.sessions.iter().enumerate().filter(|(_, other)| other.is_like(session));
        let acts: Vec<(usize, Act)> = alike.map(|(at, _)| (at, act.clone())).collect();
        let came = |order: &Interleaving| acts.iter().any(|act| order.world.came_to.contains(act));
        self.finished.iter().any(came)
    }
}

/// Every order in which the steps of `spec` can come. Of sessions that are alike but for their names,
/// the first begins first: the other orders would show the same under other names.
pub fn all(spec: &Spec) -> Orders {
    let mut orders = Orders::default();
    let start = State { world: World::new(spec), taken: vec![0; spec.sessions.len()] };
    extend(spec, &start, &mut Vec::new(), &mut orders);
    orders
}

#[derive(Clone)]
struct State {
    world: World,
    /// How many steps each session has taken.
    taken: Vec<usize>,
}

fn extend(spec: &Spec, state: &State, steps: &mut Vec<String>, orders: &mut Orders) {
    let (mut is_end, mut goes_on) = (!state.world.is_anybody_waiting(), false);
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
        if next.world.take(at, step) {
            goes_on = true;
            next.taken[at] += 1;
            steps.push(step.name.clone());
            extend(spec, &next, steps, orders);
            steps.pop();
        }
    }
    if is_end {
        orders.finished.push(Interleaving { steps: steps.clone(), world: state.world.clone() });
    } else if !goes_on {
        orders.cut += 1;
    }
}
