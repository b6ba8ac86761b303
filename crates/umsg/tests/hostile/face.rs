//! What the three faces have in common for who attacks them.

use super::support::Random;
use super::support::place::Place;
use super::watch::Watch;
use std::path::PathBuf;
use umsg::diagnosis::Repaired;

/// One kind of queue, and victims that use it.
pub trait Face {
    /// Makes what is attacked, unless a victim has to make it. In the supervisor's process, which does not protect itself: it may keep nothing mapped.
    fn prepare(&self, place: &Place);
    /// The file, once there is one.
    fn file(&self, place: &Place) -> Option<PathBuf>;
    /// Plays one of the roles until the watch says that it is over. Runs in a process of its own.
    fn play(&self, place: &Place, role: usize, watch: Watch<'_>, random: &mut Random);
    /// What the doctor makes of what is left; none if there is no queue any more that it could look at.
    fn cure(&self, place: &Place) -> Option<Repaired>;
    /// Takes out what there is, sends and receives: fails if a call does.
    fn expect_to_work(&self, place: &Place);
    /// After the attack, in another process: removes what was attacked and makes it anew, and sees that it works.
    fn remake(&self, place: &Place);
}

/// Bytes on either side of the room of a [`Buffer`].
const MARGIN: usize = 64;
const MARK: u8 = 0xc7;

/// Room for messages, with margins that show whether anything was written beside it.
pub struct Buffer(Vec<u8>);

impl Buffer {
    pub fn new(len: usize) -> Buffer {
        Buffer(vec![MARK; MARGIN + len + MARGIN])
    }

    pub fn room(&self) -> &[u8] {
        &self.0[MARGIN..self.0.len() - MARGIN]
    }

    /// Lets something be written into the room, and fails if it was written elsewhere too.
    pub fn fill(&mut self, write: impl FnOnce(&mut [u8])) {
        let len = self.0.len();
        write(&mut self.0[MARGIN..len - MARGIN]);
        let margins = self.0[..MARGIN].iter().chain(&self.0[len - MARGIN..]);
        assert!(
            margins.into_iter().all(|byte| *byte == MARK),
            "out of bounds"
        );
    }
}
