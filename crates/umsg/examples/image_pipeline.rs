//! Images of a megabyte that pass through three processes without a copy.
//!
//! ```text
//! cargo run --release --example image_pipeline
//! ```
//!
//! The camera writes each frame in place, in the memory of the queue ([`Queue::reserve`]). The filter reads the frame in place
//! ([`Queue::receive_lease`]) and writes its result into a frame of the next queue. The viewer reads that frame. At the end, the same frames pass
//! through the same stages by `send` and `receive`, which copy.

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use umsg::Namespace;
use umsg::posix::{OpenOptions, Queue};

const FRAME: usize = 1 << 20; // bytes
const FRAMES: u64 = 200;
/// The maximum number of frames between two stages.
const DEPTH: u32 = 4;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().collect();
    if let [_, stage, directory, way] = &arguments[..] {
        let in_place = way == "in-place";
        return match stage.as_str() {
            "camera" => camera(Path::new(directory), in_place),
            _ => filter(Path::new(directory), in_place),
        };
    }
    let directory = tempfile::Builder::new()
        .prefix("umsg-image-")
        .tempdir_in("/dev/shm")?;
    for way in ["in-place", "copied"] {
        let stage = |name: &str| {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg(name).arg(directory.path()).arg(way).spawn()
        };
        let begun = Instant::now();
        let mut stages = [stage("camera")?, stage("filter")?];
        view(directory.path(), way == "in-place")?;
        for stage in &mut stages {
            if !stage.wait()?.success() {
                return Err("a stage failed".into());
            }
        }
        let took = begun.elapsed();
        println!(
            "{way}: {FRAMES} frames in {took:.0?}, {:.1?} a frame",
            took / FRAMES as u32
        );
    }
    Ok(())
}

fn open(directory: &Path, name: &str) -> Result<Queue, Box<dyn Error>> {
    let namespace = Namespace::at(directory)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    options.max_messages(DEPTH).message_size(FRAME as u32);
    Ok(options.namespace(&namespace).open(name)?)
}

/// Fills the image of the camera with a number at the beginning, and a pattern after the number.
fn expose(image: &mut [u8], number: u64) {
    image.fill(number as u8);
    image[..8].copy_from_slice(&number.to_le_bytes());
}

fn negative(from: &[u8], to: &mut [u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = !from;
    }
}

fn camera(directory: &Path, in_place: bool) -> Result<(), Box<dyn Error>> {
    let raw = open(directory, "/raw")?;
    let mut image = vec![0; FRAME];
    for number in 0..FRAMES {
        if in_place {
            let mut frame = raw.reserve(FRAME)?;
            // SAFETY: the processes of this example keep to the protocol: no other process touches a reserved frame.
            expose(unsafe { frame.bytes_mut() }, number);
            frame.commit(0)?;
        } else {
            expose(&mut image, number);
            raw.send(&image, 0)?;
        }
    }
    Ok(())
}

fn filter(directory: &Path, in_place: bool) -> Result<(), Box<dyn Error>> {
    let (raw, finished) = (open(directory, "/raw")?, open(directory, "/finished")?);
    let (mut image, mut result) = (vec![0; FRAME], vec![0; FRAME]);
    for _ in 0..FRAMES {
        if in_place {
            let from = raw.receive_lease()?;
            let mut to = finished.reserve(FRAME)?;
            // SAFETY: the processes of this example keep to the protocol: no other process touches a reserved frame, and no process writes a frame
            // that is leased without a limit.
            unsafe { negative(from.bytes(), to.bytes_mut()) };
            to.commit(0)?;
            from.acknowledge()?;
        } else {
            raw.receive(&mut image)?;
            negative(&image, &mut result);
            finished.send(&result, 0)?;
        }
    }
    Ok(())
}

/// Checks that the frames arrive whole and in order.
fn view(directory: &Path, in_place: bool) -> Result<(), Box<dyn Error>> {
    let finished = open(directory, "/finished")?;
    let mut image = vec![0; FRAME];
    for number in 0..FRAMES {
        let check = |image: &[u8]| {
            let head = u64::from_le_bytes(image[..8].try_into().unwrap_or_default());
            let is_whole = image[8..].iter().all(|&byte| byte == !(number as u8));
            if head == !number && is_whole {
                Ok(())
            } else {
                Err(format!("frame {number} is not what was sent"))
            }
        };
        if in_place {
            let frame = finished.receive_lease_timeout(Duration::from_secs(30))?;
            // SAFETY: the processes of this example keep to the protocol: no process writes a frame that is leased without a limit.
            check(unsafe { frame.bytes() })?;
            frame.acknowledge()?;
        } else {
            let received = finished.receive_timeout(&mut image, Duration::from_secs(30))?;
            check(&image[..received.len])?;
        }
    }
    Ok(())
}
