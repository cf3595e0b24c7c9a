//! Listening sockets that outlast this process: systemd keeps them while the gateway is started again,
//! and those who connect meanwhile wait with the kernel (sd_listen_fds(3), FDSTORE in sd_notify(3)).

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use listenfd::ListenFd;
use sd_notify::{NotifyState, notify, notify_with_fds};
use tokio::net::TcpListener;

/// Those that an earlier gateway left.
pub(crate) struct Inherited(Vec<std::net::TcpListener>);

impl Inherited {
    /// To be asked for once, for each can be taken once.
    pub(crate) fn from_systemd() -> Self {
        let mut all = ListenFd::from_env();
        Self((0..all.len()).filter_map(|at| all.take_tcp_listener(at).ok()?).collect())
    }

    /// Listens at an address, by the socket that was left there if there is one.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn listen(&mut self, address: SocketAddr) -> io::Result<TcpListener> {
        let there = |it: &std::net::TcpListener| it.local_addr().is_ok_and(|it| it == address);
        let listener = match self.0.iter().position(there) {
            Some(at) => self.0.swap_remove(at),
            None => {
                let listener = std::net::TcpListener::bind(address)?;
                // Who cannot keep it, or is not systemd, has the next gateway bind its own.
                let name = name(address);
                let kept = [NotifyState::FdStore, NotifyState::FdName(&name)];
                let _ = notify_with_fds(&kept, &[listener.as_fd()]);
                listener
            }
        };
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    }

    /// Nobody listens any more where the settings do not say so.
    pub(crate) fn let_go(self) {
        for address in self.0.iter().filter_map(|it| it.local_addr().ok()) {
            let _ = notify(&[NotifyState::FdStoreRemove, NotifyState::FdName(&name(address))]);
        }
    }
}

/// By which systemd knows one: it takes no colons.
fn name(address: SocketAddr) -> String {
    address.to_string().replace(':', "-")
}
