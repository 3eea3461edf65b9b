//! Writing a backup file, front to back.

use std::io::{self, Write};

use super::format::{End, Frame, FrameKind, Header, PAYLOAD_BYTES_MAX};

/// Writes frames to anything that takes bytes: a file, a pipe.
pub(crate) struct BackupWriter<'w> {
    to: &'w mut dyn Write,
    mark: u32,
    number: u64,
    frames_crc: u32,
    /// Bytes written.
    pub bytes: u64,
}

impl<'w> BackupWriter<'w> {
    /// Writes the header.
    pub fn begin(to: &'w mut dyn Write, header: &Header) -> io::Result<BackupWriter<'w>> {
        let mut writer = BackupWriter { to, mark: header.mark(), number: 0, frames_crc: 0, bytes: 0 };
        writer.frame(FrameKind::Header, 0, &header.encode())?;
        Ok(writer)
    }

    /// Writes pages from `first` on, or bytes of the log from the LSN `first` on.
    pub fn frame(&mut self, kind: FrameKind, first: u64, payload: &[u8]) -> io::Result<()> {
        assert!(payload.len() <= PAYLOAD_BYTES_MAX, "a frame of {} bytes", payload.len());
        let frame = Frame::new(kind, first, self.mark, self.number, payload);
        self.to.write_all(&frame.encode())?;
        self.to.write_all(payload)?;
        self.number += 1;
        self.frames_crc = crc32c::crc32c_append(self.frames_crc, &frame.crc.to_le_bytes());
        self.bytes += (frame.encode().len() + payload.len()) as u64;
        Ok(())
    }

    /// Writes the end; only now it is a backup.
    pub fn end(mut self, end: End) -> io::Result<u64> {
        let end = End { frames_crc: self.frames_crc, ..end };
        self.frame(FrameKind::End, 0, &end.encode())?;
        self.to.flush()?;
        Ok(self.bytes)
    }
}
