//! A writer of snapshots that is made from docs/snapshot.md alone: it shares no code with the library.

/// A message as a snapshot holds it.
#[derive(Clone, Debug)]
pub struct Saved {
    pub data: Vec<u8>,
    pub priority: u32,
    pub pid: u32,
    pub sent: u64,
    pub returns: u32,
    /// The bytes that a later version adds to the head of the record.
    pub added: Vec<u8>,
}

/// A whole snapshot; each field can be made wrong.
#[derive(Clone, Debug)]
pub struct Written {
    pub version: (u16, u16),
    pub max_messages: u32,
    pub message_size: u32,
    pub mode: u32,
    pub record_head: u32,
    pub taken: u64,
    pub time_to_live: u64,
    pub on_full: u32,
    pub max_deliveries: u32,
    pub name: Vec<u8>,
    pub dead_letter: Vec<u8>,
    /// The bytes that a later version adds to the header.
    pub added: Vec<u8>,
    /// Counts of messages and bytes that replace the right ones.
    pub counts: Option<(u64, u64)>,
    pub messages: Vec<Saved>,
}

/// Returns the contents of `tests/data/snapshot-1.0.hex`.
pub fn sample() -> Written {
    let saved = |data: &[u8], priority, pid, sent| Saved {
        data: data.to_vec(),
        priority,
        pid,
        sent,
        returns: u32::from(data == b"last") * 3,
        added: Vec::new(),
    };
    Written {
        version: (1, 0),
        max_messages: 100,
        message_size: 64,
        mode: 0o640,
        record_head: 24,
        taken: 1_800_000_000_123_456_789,
        time_to_live: 3_600_000_000_000,
        on_full: 2,
        max_deliveries: 5,
        name: b"/orders".to_vec(),
        dead_letter: b"/dead".to_vec(),
        added: Vec::new(),
        counts: None,
        messages: vec![
            saved(b"urgent", 32_767, 4242, 1_799_999_999_000_000_000),
            saved(b"", 7, 1, 1_799_999_998_000_000_001),
            saved(&[0xff; 64], 7, 4_194_303, 1_799_999_998_000_000_002),
            saved(b"last", 0, 77, 1),
        ],
    }
}

impl Written {
    pub fn bytes(&self) -> Vec<u8> {
        let mut file = File::default();
        let length = 80 + self.name.len() + self.dead_letter.len() + self.added.len();
        let total = self.messages.iter().map(|saved| saved.data.len() as u64);
        let (messages, bytes) = self
            .counts
            .unwrap_or((self.messages.len() as u64, total.sum()));
        file.put(b"\x89umsg\r\n\x1a");
        file.put(&self.version.0.to_le_bytes());
        file.put(&self.version.1.to_le_bytes());
        file.put(&(length as u32).to_le_bytes());
        file.put(&self.max_messages.to_le_bytes());
        file.put(&self.message_size.to_le_bytes());
        file.put(&self.mode.to_le_bytes());
        file.put(&self.record_head.to_le_bytes());
        file.put(&messages.to_le_bytes());
        file.put(&bytes.to_le_bytes());
        file.put(&self.taken.to_le_bytes());
        file.put(&self.time_to_live.to_le_bytes());
        file.put(&self.on_full.to_le_bytes());
        file.put(&self.max_deliveries.to_le_bytes());
        file.put(&(self.name.len() as u16).to_le_bytes());
        file.put(&(self.dead_letter.len() as u16).to_le_bytes());
        file.put(&self.name);
        file.put(&self.dead_letter);
        file.put(&self.added);
        file.put_checksum();
        for saved in &self.messages {
            file.put(&(saved.data.len() as u32).to_le_bytes());
            file.put(&saved.priority.to_le_bytes());
            file.put(&saved.pid.to_le_bytes());
            file.put(&saved.sent.to_le_bytes());
            file.put(&saved.returns.to_le_bytes());
            file.put(&saved.added);
            file.put(&saved.data);
            file.put_checksum();
        }
        file.put(b"umsg-end");
        let whole = file.bytes.len() as u64 + 12;
        file.put(&whole.to_le_bytes());
        file.put_checksum();
        file.bytes
    }
}

/// The bytes of a file, and the bytes that a checksum covers.
#[derive(Default)]
struct File {
    bytes: Vec<u8>,
    summed: Vec<u8>,
}

impl File {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        self.summed.extend(bytes);
    }

    fn put_checksum(&mut self) {
        self.bytes.extend(crc32(&self.summed).to_le_bytes());
    }
}

/// CRC-32 as in gzip and PNG, computed bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc))
    })
}
