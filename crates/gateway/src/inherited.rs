//! Listening sockets that outlast this process: systemd keeps them while the gateway is started again,
//! and those who connect meanwhile wait with the kernel (sd_listen_fds(3), FDSTORE in sd_notify(3)).

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;

use listenfd::ListenFd;
use sd_notify::{NotifyState, notify, notify_with_fds};
use socket2::SockRef;
use tokio::net::TcpListener;

/// Those that an earlier gateway left.
pub(crate) struct Inherited(Vec<std::net::TcpListener>);

impl Inherited {
    /// To be asked for once, for each can be taken once.
    pub(crate) fn from_systemd() -> Self {
        let mut all = ListenFd::from_env();
        Self((0..all.len()).filter_map(|at| all.take_tcp_listener(at).ok()?).collect())
    }

    /// Nobody listens any more where the settings do not say so. To be called before anybody listens elsewhere: a socket
    /// at all addresses of this host is in the way of one at a single address.
    pub(crate) fn keep_only(&mut self, wanted: impl Fn(SocketAddr) -> bool) {
        self.0.retain(|listener| {
            let Ok(address) = listener.local_addr() else { return false };
            let stays = wanted(address);
            if !stays {
                // systemd has the socket too, and drops it only in its own time.
                let _ = SockRef::from(listener).shutdown(Shutdown::Both);
                let name = name(address);
                let _ = notify(&[NotifyState::FdStoreRemove, NotifyState::FdName(&name)]);
            }
            stays
        });
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
}

/// By which systemd knows one: it takes no colons.
fn name(address: SocketAddr) -> String {
    address.to_string().replace(':', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Even while somebody else, as systemd does, keeps the socket that is let go.
    #[tokio::test]
    async fn a_single_address_takes_the_place_of_all() {
        let all = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let kept_elsewhere = all.try_clone().unwrap();
        let one = SocketAddr::from(([127, 0, 0, 1], all.local_addr().unwrap().port()));
        let mut inherited = Inherited(vec![all]);
        inherited.keep_only(|address| address == one);
        let listener = inherited.listen(one).unwrap();
        assert_eq!(listener.local_addr().unwrap(), one);
        let (client, server) = tokio::join!(tokio::net::TcpStream::connect(one), listener.accept());
        assert_eq!(client.unwrap().local_addr().unwrap(), server.unwrap().1);
        drop(kept_elsewhere);
    }

    #[tokio::test]
    async fn what_is_there_is_listened_by() {
        let there = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = there.local_addr().unwrap();
        let mut inherited = Inherited(vec![there]);
        inherited.keep_only(|it| it == address);
        assert_eq!(inherited.listen(address).unwrap().local_addr().unwrap(), address);
        assert!(inherited.0.is_empty());
    }
}
