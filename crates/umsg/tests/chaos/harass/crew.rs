//! The life of a worker's process: its priority, its threads, its handlers, its children, and its end.

use super::aim::{self, Mark};
use super::{FORKED, HANDLER, Part, THREADS, URGENT, Work};
use crate::chaos::journal::{Deed, How};
use crate::support::Random;
use crate::support::child::{Child, Exit, PANICKED};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use umsg_testkit::real_time;

/// The signal with which the supervisor floods a worker.
pub(super) const STORM: i32 = libc::SIGUSR2;

/// `VISIT` is the time for the few calls of a forked child before the supervisor reports the child as late. `STUCK` is the limit of this process: it
/// is long, because only the supervisor measures how busy the machine is.
const VISIT: Duration = Duration::from_secs(1);
const STUCK: Duration = Duration::from_secs(60);

/// Does the work of a role until the supervisor orders the end.
pub(super) fn live<W: Work>(work: &W, role: usize, seed: u64, mark: Option<Mark>) {
    let mut random = Random::new(seed);
    aim::arm(mark);
    hurry_or_dawdle(work, role, &mut random);
    // The tool is never freed, because a signal handler may use it as long as the process lives.
    let tool = Box::leak(Box::new(work.open(&mut random)));
    let tool = &*tool;
    let scene = Box::leak(Box::new(Scene {
        work: (&raw const *work).cast(),
        tool: (&raw const *tool).cast(),
        role,
        perform: perform::<W>,
    }));
    stand_the_storm(scene, random.below(2) == 0);
    let threads = match random.below(3) {
        0 => 1 + random.below(work.threads(role) as u64) as usize,
        _ => 1,
    };
    std::thread::scope(|scope| {
        for thread in 1..threads.min(THREADS) {
            let mut random = Random::new(random.next());
            let play = move || {
                let played =
                    AssertUnwindSafe(|| work.play(tool, Part { role, thread }, &mut random));
                if catch_unwind(played).is_err() {
                    // SAFETY: ends the process with all its threads, because the process has failed.
                    unsafe { libc::_exit(PANICKED) };
                }
            };
            // If no further thread can be started, the worker has fewer threads.
            if std::thread::Builder::new()
                .spawn_scoped(scope, play)
                .is_ok()
            {
                work.journal().did(Deed::Thread);
            }
        }
        work.play(tool, Part { role, thread: 0 }, &mut random);
    });
}

/// Makes some threads more urgent than all others, if permitted, and some less, so that urgent threads wait for locks whose owners get no
/// CPU.
fn hurry_or_dawdle<W: Work>(work: &W, role: usize, random: &mut Random) {
    let first = role == 0 || role == work.senders();
    match random.below(8) {
        0 if first && real_time::become_urgent(1) => {
            URGENT.store(true, SeqCst);
            work.journal().did(Deed::Urgent);
        }
        1 | 2 => {
            // SAFETY: the call changes a setting of this thread.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 10) };
            work.journal().did(Deed::Idle);
        }
        _ => {}
    }
}

/// The data with which a signal handler uses the queue.
struct Scene {
    work: *const (),
    tool: *const (),
    role: usize,
    perform: unsafe fn(&Scene),
}

static SCENE: AtomicPtr<Scene> = AtomicPtr::new(std::ptr::null_mut());

/// The number of times that the handler has run. The number determines the action of the next run.
static STORMS: AtomicU64 = AtomicU64::new(0);

/// # Safety
/// `scene` was made by [`live`] for a work of the type `W`.
unsafe fn perform<W: Work>(scene: &Scene) {
    // SAFETY: `live` has borrowed the work for longer than the process lives, and leaked the tool.
    let (work, tool) = unsafe { (&*scene.work.cast::<W>(), &*scene.tool.cast::<W::Tool>()) };
    let mut random = Random::new(STORMS.fetch_add(1, SeqCst));
    let part = Part {
        role: scene.role,
        thread: HANDLER,
    };
    work.handle(tool, part.index(), &mut random);
    work.journal().did(Deed::Handled);
}

extern "C" fn storm(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: these are the arguments that the kernel gave to this handler.
    if unsafe { umsg::signals::defer(signal, info, context.cast()) } {
        return;
    }
    // SAFETY: the pointer to the scene was stored before the handler was installed, and the scene is never freed.
    let scene = unsafe { &*SCENE.load(SeqCst) };
    // SAFETY: `live` has paired the scene with its function.
    super::vigil::handle(|| unsafe { (scene.perform)(scene) });
}

/// Installs the handler of storms, which uses the queue. `restarts` says whether the kernel restarts an interrupted call.
fn stand_the_storm(scene: &'static Scene, restarts: bool) {
    SCENE.store((&raw const *scene).cast_mut(), SeqCst);
    // SAFETY: the handler has the type that SA_SIGINFO asks for; the structure is zeroed as sigaction(2) allows.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = storm as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | if restarts { libc::SA_RESTART } else { 0 };
        libc::sigaction(STORM, &raw const action, std::ptr::null_mut());
    }
}

/// The occasional actions of a thread between two calls: the thread forks children that use the inherited queue, runs another program, or replaces
/// its process by another program. At the replacement, the other threads of the process may be at any point.
pub fn commotion<W: Work>(work: &W, tool: &W::Tool, part: Part, random: &mut Random) {
    if work.spares(part.role) {
        return;
    }
    match random.below(1500) {
        0..3 => fork_some(work, tool, part, random),
        3 => run_another_program(work),
        4 => become_another_program(work),
        5..20 => aim::tell(work.kind(part.role)),
        _ => {}
    }
}

fn fork_some<W: Work>(work: &W, tool: &W::Tool, part: Part, random: &mut Random) {
    let index = Part {
        role: part.role,
        thread: FORKED,
    };
    let children: Vec<Child> = (0..=random.below(4))
        .map(|_| {
            work.journal().did(Deed::Fork);
            let mut random = Random::new(random.next());
            Child::run(|| {
                work.visit(tool, index.index(), &mut random);
                0
            })
        })
        .collect();
    work.journal().begin(part.index(), How::Within(VISIT));
    for mut child in children {
        // Some children die at the point that was chosen for their parent.
        let exit = child.wait(STUCK);
        let exit = exit.unwrap_or_else(|| panic!("a forked child is stuck:{}", child.portrait()));
        let ended = matches!(exit, Exit::Code(0) | Exit::Signal(libc::SIGKILL));
        assert!(ended, "a forked child: {exit:?}");
    }
    work.journal().end(part.index());
}

fn run_another_program<W: Work>(work: &W) {
    work.journal().did(Deed::Spawn);
    let _ = Command::new("/bin/true").stdin(Stdio::null()).status();
}

fn become_another_program<W: Work>(work: &W) {
    work.journal().did(Deed::Exec);
    let path = c"/bin/true";
    let arguments = [path.as_ptr(), std::ptr::null()];
    // SAFETY: the strings end with a zero byte, and the list of strings ends with a null pointer.
    unsafe {
        libc::execv(path.as_ptr(), arguments.as_ptr());
        libc::_exit(PANICKED);
    }
}
