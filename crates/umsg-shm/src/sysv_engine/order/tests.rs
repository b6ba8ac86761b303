use super::store::{NONE, target};
use super::testing::Records;
use super::types::IDLE;
use super::{Kind, Order, Want};
use crate::fault::Fault;
use crate::lock::tokens::ReceiverHeld;
use crate::sync::{Guarded32, Guarded64};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// A plain model of the order: a list of all messages in order of arrival.
#[derive(Default)]
struct Model(Vec<Message>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Message {
    sequence: u64,
    slot: u32,
    mtype: i64,
}

impl Model {
    fn add(&mut self, message: Message) {
        let at = self.0.partition_point(|other| other < &message);
        self.0.insert(at, message);
    }

    fn first(&self, want: Want) -> Option<Message> {
        let mut of = self.0.iter().copied();
        match want {
            Want::Any => of.next(),
            Want::Exactly(mtype) => of.find(|message| message.mtype == mtype),
            Want::Except(mtype) => of.find(|message| message.mtype != mtype),
            Want::Lowest(most) => {
                let fitting = of.filter(|message| message.mtype <= most);
                fitting.min_by_key(|message| (message.mtype, message.sequence))
            }
        }
    }

    fn remove(&mut self, message: Message) {
        self.0.retain(|other| *other != message);
    }

    fn kinds(&self) -> Vec<(i64, u32)> {
        let mut counts = BTreeMap::new();
        self.0
            .iter()
            .for_each(|message| *counts.entry(message.mtype).or_default() += 1);
        counts.into_iter().collect()
    }
}

/// Sends messages whose sequence numbers ascend, with gaps.
struct Sender {
    sequence: u64,
    free: Vec<u32>,
}

impl Sender {
    fn new(slots: u32) -> Sender {
        Sender {
            sequence: 0,
            free: (0..slots).rev().collect(),
        }
    }

    fn send(&mut self, order: &Order<'_, Records>, mtype: i64) -> Message {
        let slot = self.free.pop().unwrap();
        self.sequence += 1 + u64::from(slot % 3);
        order.provide(mtype).unwrap();
        order
            .push_back(ReceiverHeld::in_test(), slot, mtype, self.sequence)
            .unwrap();
        Message {
            sequence: self.sequence,
            slot,
            mtype,
        }
    }
}

/// Returns all slots in order of arrival.
fn arrivals(order: &Order<'_, Records>) -> Vec<u32> {
    order.iter().map(Result::unwrap).collect()
}

/// Asserts three facts: the tree is a search tree, each node stores the number of the oldest message of its subtree, and each type without messages
/// is in the idle list.
fn assert_sound(records: &Records) {
    fn visit(records: &Records, at: &Guarded32, parent: u32, types: &mut Vec<i64>) -> u64 {
        let Some(index) = target(at) else {
            return NONE;
        };
        let kind: &Kind = &records.kinds[index as usize];
        assert_eq!(kind.parent.get(), parent);
        let left = visit(records, &kind.left, index + 1, types);
        types.push(kind.mtype());
        let right = visit(records, &kind.right, index + 1, types);
        assert_eq!(kind.least.get(), kind.first.get().min(left).min(right));
        assert!(!kind.is_empty() || kind.listed.get() == 1);
        kind.least.get()
    }
    let mut types = Vec::new();
    visit(records, &records.roots.root, 0, &mut types);
    assert!(types.is_sorted());
}

fn assert_same(records: &Records, model: &Model, of: &[i64]) {
    let order = Order::of(records);
    let slots: Vec<u32> = model.0.iter().map(|message| message.slot).collect();
    assert_eq!(arrivals(&order), slots);
    let wants = of.iter().flat_map(|&mtype| {
        [
            Want::Any,
            Want::Exactly(mtype),
            Want::Except(mtype),
            Want::Lowest(mtype),
            Want::Lowest(i64::MAX),
        ]
    });
    for want in wants {
        let expected = model.first(want).map(|message| message.slot);
        assert_eq!(order.first(want), Ok(expected), "{want:?}");
    }
    let kinds: Vec<_> = order.kinds().map(Result::unwrap).collect();
    assert_eq!(kinds, model.kinds());
    assert_sound(records);
}

fn want() -> impl Strategy<Value = fn(i64) -> Want> {
    prop_oneof![
        Just((|_| Want::Any) as fn(i64) -> Want),
        Just(Want::Exactly as fn(i64) -> Want),
        Just(Want::Except as fn(i64) -> Want),
        Just(Want::Lowest as fn(i64) -> Want),
        Just((|_| Want::Lowest(i64::MAX)) as fn(i64) -> Want),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 96 }))]

    #[test]
    fn the_order_delivers_the_same_as_a_plain_list(
        types in prop_oneof![Just(1_i64), Just(2), Just(5), Just(300)],
        seed in any::<u64>(),
        steps in prop::collection::vec((0..8_u8, any::<u16>(), want(), 0..400_u32), 1..300),
    ) {
        let records = Records::new(300);
        records.roots.seed.set(seed);
        let order = Order::of(&records);
        let (mut model, mut away) = (Model::default(), Vec::<Message>::new());
        let mut sender = Sender::new(300);
        for (step, pick, want, n) in steps {
            // Most types are far apart, and one is the largest type of all.
            let mtype = match i64::from(pick) % types {
                4 => i64::MAX,
                small => 1 + small * 8,
            };
            match step {
                0..=2 => model.add(sender.send(&order, mtype)),
                3 => {
                    if let Some(message) = model.first(want(mtype)) {
                        order.remove(ReceiverHeld::in_test(), message.slot).unwrap();
                        model.remove(message);
                        sender.free.insert(0, message.slot);
                    }
                }
                4 => {
                    if let Some(message) = model.first(want(mtype)) {
                        order.remove(ReceiverHeld::in_test(), message.slot).unwrap();
                        model.remove(message);
                        away.push(message);
                    }
                }
                5 if !away.is_empty() => {
                    let message = away.swap_remove(usize::from(pick) % away.len());
                    order.insert(ReceiverHeld::in_test(), message.slot, message.mtype, message.sequence).unwrap();
                    model.add(message);
                }
                6 => order.provide(mtype).unwrap(),
                _ => {
                    let found = model.0.get(n as usize).map(|message| message.slot);
                    prop_assert_eq!(order.nth(n), Ok(found));
                }
            }
            assert_same(&records, &model, &[mtype]);
        }
        order.clear(ReceiverHeld::in_test()).unwrap();
        assert_same(&records, &Model::default(), &[1, 9]);
        for message in &model.0 {
            order.push_back(ReceiverHeld::in_test(), message.slot, message.mtype, message.sequence).unwrap();
        }
        for message in away {
            order.insert(ReceiverHeld::in_test(), message.slot, message.mtype, message.sequence).unwrap();
            model.add(message);
        }
        assert_same(&records, &model, &[1, 9]);
    }

    /// Checks that each call ends with a result or an error, whatever a peer writes, and that the first repair restores the order.
    #[test]
    fn words_that_a_peer_writes_lead_to_errors_at_most(
        seed in any::<u64>(),
        steps in prop::collection::vec((0..9_u8, any::<u8>(), want(), any::<u32>(), any::<u64>()), 1..400),
    ) {
        let records = Records::new(40);
        records.roots.seed.set(seed);
        let order = Order::of(&records);
        let (mut slot, mut sequence) = (0, 0);
        for (step, pick, want, at, value) in steps {
            let mtype = 1 + i64::from(pick % 20);
            match step {
                0..=2 => {
                    (slot, sequence) = ((slot + 1) % 40, sequence + 1);
                    let _ = order.provide(mtype).and_then(|()| order.push_back(ReceiverHeld::in_test(), slot, mtype, sequence));
                }
                3 => {
                    if let Ok(Some(found)) = order.first(want(mtype)) {
                        let _ = order.remove(ReceiverHeld::in_test(), found);
                    }
                }
                4 => {
                    let _ = order.insert(ReceiverHeld::in_test(), at % 40, mtype, value % (sequence + 1));
                }
                5 => {
                    let _ = (order.nth(at % 50), order.iter().count(), order.kinds().count());
                }
                6 => {
                    let _ = order.provide_all((1..i64::from(pick)).step_by(7));
                }
                _ => scribble(&records, at as usize, value),
            }
        }
        order.clear(ReceiverHeld::in_test()).unwrap();
        // A repair keeps the number of usable records, which the steps above may have forged. So the test resets this number.
        records.roots.usable.set(0);
        let (mut model, mut sender) = (Model::default(), Sender::new(40));
        for mtype in 1..20 {
            model.add(sender.send(&order, mtype));
        }
        assert_same(&records, &model, &[1, 5, 19]);
    }
}

/// Overwrites one word. About every second value is a link that may lead to an item.
fn scribble(records: &Records, at: usize, value: u64) {
    let place = &records.places[at % records.places.len()];
    let kind = &records.kinds[at % 24];
    let roots = &records.roots;
    let words: [&Guarded32; 26] = [
        &place.next_of_kind,
        &place.next,
        &place.previous,
        &place.kind,
        &kind.head,
        &kind.tail,
        &kind.count,
        &kind.left,
        &kind.right,
        &kind.parent,
        &kind.newer,
        &kind.listed,
        &roots.head,
        &roots.tail,
        &roots.root,
        &roots.cursor,
        &roots.position,
        &roots.returned,
        &roots.recent[at % 8],
        &roots.free,
        &roots.used,
        &roots.usable,
        &roots.oldest,
        &roots.newest,
        &roots.listed,
        &kind.left,
    ];
    let long: [&Guarded64; 5] = [
        &place.sequence,
        &kind.mtype,
        &kind.first,
        &kind.least,
        &roots.seed,
    ];
    let plausible = if value.is_multiple_of(4) {
        value
    } else {
        value % 26
    };
    match words.get(value as usize / 32 % 32) {
        Some(word) => word.set(plausible as u32),
        None => long[at % 5].set(plausible),
    }
}

/// Tests more types than [`Model`] could handle in time, with one list for each type.
#[test]
fn twenty_thousand_types_are_each_served_in_order() {
    const TYPES: u64 = 20_000;
    let records = Records::new(40_000);
    records.roots.seed.set(0x5eed);
    let order = Order::of(&records);
    let mut sender = Sender::new(40_000);
    let mut model = HashMap::<i64, VecDeque<u32>>::new();
    let mut random = 1_u64;
    let mut any_type = || {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        1 + (random >> 33) as i64 % TYPES as i64
    };
    for round in 0..120_000 {
        let mtype = any_type();
        if round % 3 < 2 && !sender.free.is_empty() {
            let message = sender.send(&order, mtype);
            model.entry(mtype).or_default().push_back(message.slot);
        } else {
            let expected = model.get_mut(&mtype).and_then(VecDeque::pop_front);
            assert_eq!(order.first(Want::Exactly(mtype)), Ok(expected));
            if let Some(slot) = expected {
                order.remove(ReceiverHeld::in_test(), slot).unwrap();
                sender.free.push(slot);
            }
        }
    }
    assert_sound(&records);
    let mut in_order: Vec<i64> = model
        .iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(&mtype, _)| mtype)
        .collect();
    in_order.sort_unstable();
    let kinds: Vec<i64> = order.kinds().map(|kind| kind.unwrap().0).collect();
    assert_eq!(kinds, in_order);
    for mtype in in_order {
        for slot in model.remove(&mtype).unwrap() {
            assert_eq!(order.first(Want::Lowest(i64::MAX)), Ok(Some(slot)));
            order.remove(ReceiverHeld::in_test(), slot).unwrap();
        }
    }
    assert_eq!(order.first(Want::Any), Ok(None));
}

#[test]
fn a_scan_by_number_walks_one_step_each_while_others_receive() {
    let records = Records::new(100);
    let order = Order::of(&records);
    let mut sender = Sender::new(100);
    let mut model = Model::default();
    for n in 0..100 {
        model.add(sender.send(&order, 1 + n % 3));
    }
    // In each turn, the cursor moves on by two messages, and one message before the cursor is removed, which shifts the later positions by one.
    for n in (0..60).step_by(2) {
        assert_eq!(order.nth(n), Ok(Some(model.0[n as usize].slot)));
        let first = model.0[0];
        order.remove(ReceiverHeld::in_test(), first.slot).unwrap();
        model.remove(first);
        let at = target(&records.roots.cursor);
        assert_eq!(at, (n > 0).then(|| model.0[n as usize - 1].slot));
    }
    assert_eq!(order.nth(1_000), Ok(None));
    assert_eq!(order.nth(69), Ok(Some(model.0[69].slot)));
    assert_eq!(order.nth(3), Ok(Some(model.0[3].slot)));
    assert_eq!(order.nth(2), Ok(Some(model.0[2].slot)));
}

#[test]
fn types_that_come_once_each_leave_few_records_behind() {
    let records = Records::new(1_000);
    let order = Order::of(&records);
    let mut sender = Sender::new(1_000);
    for mtype in 1..=500 {
        sender.send(&order, mtype);
    }
    assert_eq!(records.roots.used.get(), 500);
    for _ in 0..500 {
        let slot = order.first(Want::Any).unwrap().unwrap();
        order.remove(ReceiverHeld::in_test(), slot).unwrap();
    }
    // All types are idle. Each new type removes two of them, until few are left.
    for mtype in 1_001..=3_000 {
        let message = sender.send(&order, mtype);
        order.remove(ReceiverHeld::in_test(), message.slot).unwrap();
        sender.free.push(message.slot);
        assert_sound(&records);
    }
    assert_eq!(records.roots.used.get(), 500);
    assert_eq!(records.roots.listed.get(), IDLE);
    assert_eq!(order.kinds().count(), 0);
}

#[test]
fn a_type_in_use_is_never_removed_for_a_new_one() {
    let records = Records::new(400);
    let order = Order::of(&records);
    let mut sender = Sender::new(400);
    // These types were idle once, so they are in the idle list. Now they are in use.
    for mtype in 1..=100 {
        order.provide(mtype).unwrap();
    }
    let kept: Vec<_> = (1..=100).map(|mtype| sender.send(&order, mtype)).collect();
    for mtype in 101..=300 {
        let message = sender.send(&order, mtype);
        order.remove(ReceiverHeld::in_test(), message.slot).unwrap();
    }
    for message in kept {
        assert_eq!(
            order.first(Want::Exactly(message.mtype)),
            Ok(Some(message.slot))
        );
    }
    assert_sound(&records);
}

#[test]
fn a_batch_of_many_types_has_its_memory_before_its_first_message() {
    let records = Records::new(300);
    let order = Order::of(&records);
    for mtype in 1..=150 {
        order.provide(mtype).unwrap();
    }
    order.provide_all(100..=300).unwrap();
    records.memory.set(0);
    let calls = records.provided.get();
    for slot in 0..=200 {
        order
            .push_back(
                ReceiverHeld::in_test(),
                slot,
                100 + i64::from(slot),
                u64::from(slot),
            )
            .unwrap();
    }
    assert_eq!(records.provided.get(), calls);
    assert_eq!(order.kinds().count(), 201);
}

#[test]
fn a_batch_takes_the_last_records_from_idle_types() {
    let records = Records::new(20);
    let order = Order::of(&records);
    for mtype in 11..=20 {
        order.provide(mtype).unwrap();
    }
    let mut sender = Sender::new(20);
    for mtype in 1..=10 {
        sender.send(&order, mtype);
    }
    // 10 of 20 records are in use. The records of the idle types 11 to 14 are needed for types 21 to 24.
    order.provide_all(15..=24).unwrap();
    for mtype in 15..=24 {
        let slot = sender.free.pop().unwrap();
        order
            .push_back(ReceiverHeld::in_test(), slot, mtype, 1_000 + mtype as u64)
            .unwrap();
    }
    assert_eq!(order.kinds().count(), 20);
    assert_sound(&records);
}

#[test]
fn without_memory_a_new_type_takes_the_record_of_an_idle_one_or_is_refused() {
    let records = Records::new(20);
    let order = Order::of(&records);
    records.memory.set(16);
    let mut sender = Sender::new(20);
    for mtype in 1..=16 {
        sender.send(&order, mtype);
    }
    assert_eq!(order.provide(17), Err(Fault::NoMemory));
    order.remove(ReceiverHeld::in_test(), 4).unwrap();
    sender.send(&order, 17);
    assert_eq!(order.provide(5), Err(Fault::NoMemory));
    assert_eq!(order.first(Want::Exactly(5)), Ok(None));
    assert_sound(&records);
}

#[test]
fn a_type_below_one_is_refused() {
    let records = Records::new(4);
    let order = Order::of(&records);
    for mtype in [0, -1, i64::MIN] {
        assert_eq!(
            order.push_back(ReceiverHeld::in_test(), 0, mtype, 1),
            Err(Fault::Damaged)
        );
        assert_eq!(order.first(Want::Exactly(mtype)), Ok(None));
    }
    assert_eq!(
        order.remove(ReceiverHeld::in_test(), 0),
        Err(Fault::Damaged)
    );
}
