//! What ssh says on standard error: passed on to people, and looked at, for the exit code does not tell a login
//! that was refused from a host that cannot be reached.

use std::io::Write;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::ChildStderr;
use tokio::task::JoinHandle;

/// Of a longer line the rest counts as another.
const LINE_MAX: u64 = 4 << 10;
/// As OpenSSH says that somebody is there who will not have it; trying again is of no use, and may be counted.
const REFUSALS: [&str; 5] = [
    ": Permission denied (",
    "Too many authentication failures",
    "Host key verification failed",
    "Unable to negotiate with ",
    "no mutual signature ",
];

/// What one ssh says.
pub struct Words(JoinHandle<bool>);

impl Words {
    /// Passes on what comes, until it ends.
    pub fn of(stderr: ChildStderr) -> Self {
        Self(tokio::spawn(pass(BufReader::new(stderr), std::io::stderr())))
    }

    /// Waits for its end. Whether the login was refused, if it has failed.
    pub async fn are_refusal(self) -> bool {
        self.0.await.unwrap_or(false)
    }
}

async fn pass(mut from: impl AsyncBufRead + Unpin, mut to: impl Write) -> bool {
    let mut is_refusal = false;
    loop {
        let mut line = Vec::new();
        let read = (&mut from).take(LINE_MAX).read_until(b'\n', &mut line).await;
        if !read.is_ok_and(|read| read > 0) {
            return is_refusal;
        }
        // A reader who has gone away does not end the copy.
        let _ = to.write_all(&line);
        let line = String::from_utf8_lossy(&line);
        is_refusal |= REFUSALS.iter().any(|refusal| line.contains(refusal));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_refusal_is_told_from_a_host_that_is_not_reached() {
        let looked = async |said: &str| {
            let mut passed = Vec::new();
            let is_refusal = pass(said.as_bytes(), &mut passed).await;
            assert_eq!(passed, said.as_bytes());
            is_refusal
        };
        for refused in [
            "Welcome\nme@far: Permission denied (publickey,password).\r\n",
            "Host key verification failed.\r\n",
            "Received disconnect from ::1 port 22:2: Too many authentication failures",
            "Unable to negotiate with ::1 port 22: no matching host key type found.",
        ] {
            assert!(looked(refused).await, "{refused}");
        }
        for silent in [
            "",
            "ssh: connect to host far port 22: Connection refused\r\n",
            "ssh: connect to host far port 22: Permission denied\r\n",
            "ssh: Could not resolve hostname far: Name or service not known\r\n",
            "kex_exchange_identification: Connection closed by remote host\r\n",
            "Timeout, server far not responding.\r\n",
        ] {
            assert!(!looked(silent).await, "{silent}");
        }
    }
}
