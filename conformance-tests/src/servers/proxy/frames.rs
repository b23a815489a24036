//! Where one request or one answer ends in a stream.

/// How the proxy finds frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// Redis without TLS, of either version of its protocol: a frame is a command, an answer or a
    /// message. Nothing is passed on before it is whole.
    Resp,
    /// Everything else: a frame is whatever arrives at once, mostly what was written at once.
    Raw,
}

impl Framing {
    /// How long the first frame of `bytes` is; `None` if it is not whole.
    pub(super) fn first(self, bytes: &[u8]) -> Option<usize> {
        match self {
            Self::Resp => resp(bytes, 0),
            Self::Raw => (!bytes.is_empty()).then_some(bytes.len()),
        }
    }

    /// Whether a frame from the server belongs to no request.
    pub(super) fn is_message(self, frame: &[u8]) -> bool {
        self == Self::Resp && frame.first() == Some(&b'>')
    }
}

/// Where the value that begins at `at` ends.
fn resp(bytes: &[u8], at: usize) -> Option<usize> {
    let line = bytes.get(at..)?;
    let length = line.windows(2).position(|two| two == b"\r\n")?;
    let behind = at + length + 2;
    // A length below zero stands for nothing, and a word is not a length.
    let number = || -> usize {
        let text = line.get(1..length).and_then(|text| std::str::from_utf8(text).ok());
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    };
    let is_nil = line.get(1) == Some(&b'-');
    match line.first()? {
        b'$' | b'!' | b'=' if !is_nil => {
            let end = behind + number() + 2;
            (bytes.len() >= end).then_some(end)
        }
        b'*' | b'~' | b'>' => (0..number()).try_fold(behind, |at, _| resp(bytes, at)),
        b'%' => (0..2 * number()).try_fold(behind, |at, _| resp(bytes, at)),
        // An attribute stands before the value that it is about.
        b'|' => (0..=2 * number()).try_fold(behind, |at, _| resp(bytes, at)),
        _ => Some(behind),
    }
}

#[cfg(test)]
mod tests {
    use super::Framing;

    #[test]
    fn whole_frames_are_found_and_parts_are_not() {
        let frames: [&[u8]; 12] = [
            b"+OK\r\n",
            b"-ERR no\r\n",
            b":-5\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"_\r\n",
            b"$4\r\na\r\nb\r\n",
            b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
            b"*3\r\n*1\r\n:1\r\n$-1\r\n*0\r\n",
            b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n",
            b"%1\r\n+a\r\n*1\r\n:1\r\n",
            b"|1\r\n+a\r\n:1\r\n*1\r\n:2\r\n",
        ];
        for frame in frames {
            let shown = frame.escape_ascii().to_string();
            let more = [frame, b"+x"].concat();
            assert_eq!(Framing::Resp.first(&more), Some(frame.len()), "{shown}");
            for end in 0..frame.len() {
                assert_eq!(Framing::Resp.first(&frame[..end]), None, "{shown} up to {end}");
            }
        }
    }
}
