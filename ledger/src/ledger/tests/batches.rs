//! Batches: what is one commit, who is answered when, and what a full queue does.

use super::*;

#[test]
fn two_hundred_claims_of_one_key_run_once() {
    let bench = bench();
    bench.store.with(|inside| inside.held = true);
    let asking: Vec<_> = (0..200)
        .map(|_| {
            let ledger = bench.ledger.clone();
            thread::spawn(move || ask(&ledger, claim(1)).unwrap())
        })
        .collect();
    // All but the first batch wait while its commit runs, and none is answered before it has ended.
    eventually(|| (bench.ledger.stats().queued > 100).then_some(()));
    assert_eq!(asking.iter().filter(|one| one.is_finished()).count(), 0);
    bench.store.with(|inside| inside.held = false);
    let answers: Vec<Claimed> = asking.into_iter().map(|one| one.join().unwrap()).collect();
    let runs = answers.iter().filter(|one| matches!(one, Claimed::Execute { .. })).count();
    let waits = answers.iter().filter(|one| matches!(one, Claimed::InProgress(_))).count();
    assert_eq!((runs, waits), (1, 199));
    assert_eq!(bench.ledger.stats().started, 1);
}

#[test]
fn what_waits_while_a_commit_runs_is_one_commit() {
    let bench = bench();
    bench.store.with(|inside| inside.held = true);
    let ask_for = |invoice: u64| {
        let ledger = bench.ledger.clone();
        thread::spawn(move || run(&ledger, invoice))
    };
    let mut asking = vec![ask_for(0)];
    bench.store.until(|inside| inside.inside == 1);
    asking.extend((1..=100).map(ask_for));
    eventually(|| (bench.ledger.stats().queued == 100).then_some(()));
    bench.store.with(|inside| inside.held = false);
    for one in asking {
        one.join().unwrap();
    }
    assert_eq!(bench.store.with(|inside| inside.batches.clone()), [1, 100]);
    let stats = bench.ledger.stats();
    assert_eq!((stats.batches, stats.commands, stats.largest_batch, stats.started), (2, 101, 100, 101));
}

#[test]
fn a_full_queue_refuses_at_once_and_the_queued_ones_are_answered() {
    let bench = over(Shared::default(), 2, 10);
    bench.store.with(|inside| inside.held = true);
    let ask_for = |invoice: u64| {
        let ledger = bench.ledger.clone();
        thread::spawn(move || ask(&ledger, claim(invoice)))
    };
    let first = ask_for(0);
    bench.store.until(|inside| inside.inside == 1);
    let queued = [ask_for(1), ask_for(2)];
    eventually(|| (bench.ledger.stats().queued == 2).then_some(()));
    assert_eq!(ask(&bench.ledger, claim(3)).unwrap_err(), Unavailable::Busy);
    bench.store.with(|inside| inside.held = false);
    assert!(first.join().unwrap().is_ok());
    assert!(queued.into_iter().all(|one| one.join().unwrap().is_ok()));
}

#[test]
fn an_observer_sees_each_transition_before_its_answer_and_cannot_end_the_ledger() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let store = Shared::default();
    let clock = Clock::default();
    let observer: Observer = {
        let seen = Arc::clone(&seen);
        Arc::new(move |transition: &Transition<'_>| {
            lock(&seen).push((transition.from, transition.record.state));
            panic!("a bad observer");
        })
    };
    let options = Options { observer: Some(observer), ..options(&clock, 10, 10) };
    let ledger = Ledger::start_with(Box::new(store), options, toy::decide).unwrap();
    let (record, token) = run(&ledger, 1);
    assert_eq!(*lock(&seen), [(None, State::Started)]);
    ledger.submit_blocking(complete(record.key, &token)).unwrap();
    assert_eq!(lock(&seen)[1], (Some(State::Started), State::Succeeded));
}

#[test]
fn a_caller_that_leaves_takes_nothing_back() {
    let bench = bench();
    bench.store.with(|inside| inside.held = true);
    {
        let mut asking = std::pin::pin!(bench.ledger.claim(claim(1)));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(asking.as_mut().poll(&mut context).is_pending());
    }
    bench.store.with(|inside| inside.held = false);
    assert!(matches!(ask(&bench.ledger, claim(1)), Ok(Claimed::InProgress(_))));
}

#[test]
fn a_faster_writer_makes_it_decide_again_and_not_for_ever() {
    let bench = bench();
    bench.store.with(|inside| inside.conflicts = 5);
    run(&bench.ledger, 1);
    bench.store.with(|inside| inside.conflicts = 1000);
    assert!(matches!(ask(&bench.ledger, claim(2)), Err(Unavailable::Store(_))));
    bench.store.with(|inside| inside.conflicts = 0);
    run(&bench.ledger, 2);
}

#[test]
fn the_queue_is_bounded_by_bytes_too_and_a_batch_by_both() {
    let queue = Queue::new(5000, 10);
    let token: Arc<str> = "lease".into();
    let push = |size: usize| {
        let Command::Complete(mut complete) = complete(ExecutionKey::from_bytes([1; 32]), &token) else { panic!() };
        complete.settlement.result.as_mut().unwrap().body = vec![0; size].into();
        queue.push(Command::Complete(complete), oneshot::channel().0)
    };
    let taken = (0..20).take_while(|_| push(8 * 1024 * 1024).is_ok()).count();
    assert_eq!((taken, push(1)), (15, Ok(())), "128 MiB");
    assert_eq!(queue.take(queue::now()).jobs.len(), 1, "one that is larger than a batch goes alone");
    for _ in 0..15 {
        queue.take(queue::now());
    }
    assert_eq!(queue.depths().0, 0);
    assert!((0..3000).all(|_| push(1).is_ok()));
    assert_eq!(queue.take(queue::now()).jobs.len(), 1024);
    assert!((0..2000).all(|_| push(4096).is_ok()));
    queue.take(queue::now());
    queue.take(queue::now());
    let batch = queue.take(queue::now()).jobs.len();
    assert!((800..1024).contains(&batch), "{batch} of 4 KiB and more, in 4 MiB");
}
