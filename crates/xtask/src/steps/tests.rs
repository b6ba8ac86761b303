use super::*;

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

#[test]
fn what_runs_beside_the_others_is_counted_when_it_has_ended() {
    let mut steps = Steps::new(PathBuf::new());
    let line = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
    let beside = steps.begin("beside", &mut shell(&format!("echo '{line}'")));
    steps.end(beside.unwrap()).unwrap();
    assert_eq!(steps.done[0].tests.passed, 3);
}

#[test]
fn what_ends_before_the_others_has_its_own_time() {
    let mut steps = Steps::new(PathBuf::new());
    let beside = steps.begin("short", &mut shell("true")).unwrap();
    while !beside.output.as_ref().unwrap().is_finished() {
        std::thread::yield_now();
    }
    steps.run("long", &mut shell("sleep 0.2")).unwrap();
    let ended = steps.start.elapsed();
    steps.end(beside).unwrap();
    assert!(steps.done[1].took + Duration::from_millis(200) <= ended);
}

#[test]
fn steps_after_a_failure_run_and_all_failures_are_listed_in_the_end() {
    let mut steps = Steps::new(PathBuf::new());
    let beside = steps.begin("beside", &mut shell("exit 7")).unwrap();
    steps.run("first", &mut shell("exit 3")).unwrap();
    steps.run("second", &mut shell("true")).unwrap();
    steps.end(beside).unwrap();
    let failed: Vec<_> = steps.done.iter().map(|done| done.failed.as_ref()).collect();
    let again = |failed: &Failed| (failed.status.code(), failed.again.clone());
    assert_eq!(
        failed
            .into_iter()
            .map(|failed| failed.map(again))
            .collect::<Vec<_>>(),
        [
            Some((Some(3), vec!["sh -c 'exit 3'".to_owned()])),
            None,
            Some((Some(7), vec!["sh -c 'exit 7'".to_owned()])),
        ]
    );
    let failure = steps.finish().unwrap_err();
    assert_eq!(failure.to_string(), "2 of 3 steps failed");
}

#[test]
fn a_step_that_all_others_need_stops_them() {
    let mut steps = Steps::new(PathBuf::new());
    steps.need("build", &mut shell("true")).unwrap();
    assert!(steps.need("build", &mut shell("exit 1")).is_err());
}

#[test]
fn a_step_that_may_fail_is_skipped_if_it_does() {
    let mut steps = Steps::new(PathBuf::new());
    let mut fails = shell("exit 1");
    steps.try_run("optional", &mut fails, "left out").unwrap();
    steps.finish().unwrap();
    assert_eq!(
        steps.skipped,
        ["optional: failed (exit status: 1); left out"]
    );
}

#[test]
fn what_runs_beside_a_step_that_stops_all_is_ended_with_all_that_it_started() {
    let mut steps = Steps::new(PathBuf::new());
    let mut long = steps
        .begin("long", &mut shell("sleep 600 & sleep 600"))
        .unwrap();
    let output = long.output.take().unwrap();
    let start = Instant::now();
    drop(long);
    // All processes that could write have ended.
    output.join().unwrap().unwrap();
    assert!(start.elapsed() < Duration::from_secs(60));
}
