//! Tests unmodified programs that use queues under `umsg run`.

use super::*;

#[test]
fn an_unmodified_program_runs_on_umsgs_queues() {
    const SOURCE: &str = r#"
        #include <fcntl.h>
        #include <mqueue.h>
        #include <string.h>
        int main(int argc, char **argv) {
            struct mq_attr attr = { .mq_maxmsg = 65528, .mq_msgsize = 16 };
            mqd_t queue = mq_open("/from-c", O_RDWR | O_CREAT | O_EXCL, 0600, &attr);
            if (queue == (mqd_t)-1) return 1;
            for (int i = 1; i < argc; i++)
                if (mq_send(queue, argv[i], strlen(argv[i]), i)) return 2;
            return 0;
        }"#;
    let (site, workshop) = (Site::new(), Workshop::new());
    let program = workshop.compile("sender", SOURCE, &["-lrt"]);
    let run = ["run", "--", program.to_str().unwrap(), "hello", "world"];
    let outcome = finish(site.command(&run).env("UMSG_PRELOAD", drop_in()), b"");
    assert_eq!(outcome.text(), "");
    let queue = site.umsg(&["stat", "/from-c", "--json"]).json();
    assert_eq!(
        (&queue["max_messages"], &queue["messages"]),
        (&65_528.into(), &2.into())
    );
    assert_eq!(
        site.umsg(&["recv", "/from-c", "--all"]).text(),
        "world\nhello\n"
    );
}

#[test]
fn a_program_is_the_last_user_of_a_queue_that_goes_as_long_as_it_has_a_descriptor() {
    const SOURCE: &str = r#"
        #define _GNU_SOURCE
        #include <errno.h>
        #include <fcntl.h>
        #include <mqueue.h>
        #include <unistd.h>
        #define CHECK(that) if (!(that)) return __LINE__
        static int is_there(void)
        {
            mqd_t queue = mq_open("/goes", O_RDONLY);
            return queue != (mqd_t)-1 && mq_close(queue) == 0;
        }
        int main(int count, char **arguments)
        {
            struct mq_attr attributes;
            mqd_t first, second;
            if (count > 1) {
                // Descriptor 3 is the inherited queue.
                CHECK(mq_getattr(3, &attributes) == 0 && attributes.mq_curmsgs == 1);
                CHECK(mq_close(3) == 0 && !is_there() && errno == ENOENT);
                return 0;
            }
            first = mq_open("/goes", O_RDWR);
            second = mq_open("/goes", O_RDONLY);
            CHECK(first == 3 && second == 4 && mq_send(first, "x", 1, 0) == 0);
            CHECK(mq_close(second) == 0);
            CHECK(dup(first) == 4 && mq_close(first) == 0 && dup2(4, 3) == 3);
            CHECK(close_range(4, ~0U, 0) == 0 && is_there());
            execl(arguments[0], arguments[0], "again", (char *)0);
            return 100;
        }"#;
    let (site, workshop) = (Site::new(), Workshop::new());
    let program = workshop.compile("goes", SOURCE, &["-lrt"]);
    site.umsg(&["create", "/goes", "--remove-on-last-close"])
        .text();
    let run = ["run", "--", program.to_str().unwrap()];
    let outcome = finish(site.command(&run).env("UMSG_PRELOAD", drop_in()), b"");
    assert_eq!(outcome.text(), "");
    assert_eq!(site.umsg(&["ls", "--quiet"]).text(), "");
}

#[test]
fn a_program_waits_in_the_mode_given_to_umsg_run() {
    const SOURCE: &str = r#"
        #include <fcntl.h>
        #include <mqueue.h>
        #include <stdio.h>
        #include <time.h>
        int main(void) {
            struct mq_attr attr = { .mq_maxmsg = 1, .mq_msgsize = 1 };
            mqd_t queue = mq_open("/empty", O_RDONLY | O_CREAT, 0600, &attr);
            struct timespec end;
            clock_gettime(CLOCK_REALTIME, &end);
            end.tv_sec += 1;
            char byte;
            clock_t before = clock();
            mq_timedreceive(queue, &byte, 1, NULL, &end);
            printf("%ld", (long)(clock() - before));
            return 0;
        }"#;
    let (site, workshop) = (Site::new(), Workshop::new());
    let program = workshop.compile("waiter", SOURCE, &["-lrt"]);
    let library = drop_in();
    let cpu_time = |how: &str| -> u64 {
        let run = ["run", "--wait", how, "--", program.to_str().unwrap()];
        let outcome = finish(site.command(&run).env("UMSG_PRELOAD", library), b"");
        outcome.text().parse().unwrap()
    };
    // The program waits for one second in mq_timedreceive. A spinning thread uses all CPU time that it gets in this second, and a sleeping thread
    // wakes up ten times.
    let (blocking, spinning) = (cpu_time("blocking"), cpu_time("spinning"));
    assert!(spinning > 3 * blocking, "{spinning} µs, {blocking} µs");
}

#[test]
fn the_options_choose_whose_queues_dev_mqueue_and_ipc_namespaces_have() {
    let site = Site::new();
    site.umsg(&["create", "/jobs"]).text();
    let library = drop_in();
    let shell = |options: &[&str], line: &str| {
        let arguments = [&["run"], options, &["--", "sh", "-c", line]].concat();
        let mut command = site.command(&arguments);
        command
            .env("UMSG_PRELOAD", library)
            .env("UMSG", env!("CARGO_BIN_EXE_umsg"));
        finish(&mut command, b"").text().to_owned()
    };
    assert_eq!(shell(&[], "ls /dev/mqueue"), "jobs\n");
    let off = shell(&["--dev-mqueue", "off"], "ls /dev/mqueue 2>&1; true");
    assert_ne!(off, "jobs\n");
    // If the command `umsg` is started under `umsg run` in another IPC namespace, it uses the queues of that IPC namespace.
    umsg_testkit::needs_root!();
    let made = r#""$UMSG" create /other >/dev/null; "$UMSG" ls --quiet; ls /dev/mqueue;
        "$UMSG" run -- unshare --ipc "$UMSG" ls --quiet; "$UMSG" run -- "$UMSG" ls --quiet"#;
    let line = format!("unshare --ipc sh -c '{made}'; ls /dev/mqueue");
    assert_eq!(shell(&[], &line), "/other\nother\n/other\njobs\n");
    let shared = ["--ipc-namespaces", "share"];
    assert_eq!(shell(&shared, "unshare --ipc ls /dev/mqueue"), "jobs\n");
    let leftovers = site.umsg(&["gc", "--leftovers", "--json"]).json();
    assert_eq!(leftovers["stale_files"]["incomplete"], 0);
}
