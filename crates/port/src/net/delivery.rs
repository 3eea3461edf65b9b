//! Messages of other sites, on their last step to the ports of this one.
//!
//! Messages for a full port wait here, up to a bound for all ports together. Beyond that bound the network takes
//! nothing more, and the other sites wait. A port that is closed or too small refuses, and its senders are told.

use super::multicast::Introduction;
use super::network::Inner;
use super::peer::Peer;
use super::wire::{INTRODUCTION, REFUSAL, RemoteMessage};
use crate::address::{Address, Instance, ServerInstance, ServerType};
use crate::bus::Bus;
use crate::error::SendError;
use crate::group::GroupSender;
use crate::host::Host;
use crate::lane::LaneSender;
use crate::options::Access;
use crate::wait::Patience;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes that may wait for ports of this site.
const WAITING_BYTES_MAX: usize = 8 << 20;
/// How long a port's owner may take to answer: all other ports wait for it.
const ANSWER_WITHIN: Duration = Duration::from_millis(200);

pub(crate) struct Delivery {
    host: Host,
    network: Arc<Inner>,
    ports: HashMap<Address, Destination>,
    groups: HashMap<(Instance, ServerType), Option<GroupSender>>,
    waiting_bytes: usize,
}

#[derive(Default)]
struct Destination {
    lane: Option<LaneSender>,
    waiting: VecDeque<(Arc<Peer>, RemoteMessage)>,
}

impl Delivery {
    pub(crate) fn new(host: Host, network: Arc<Inner>) -> Delivery {
        Delivery { host, network, ports: HashMap::new(), groups: HashMap::new(), waiting_bytes: 0 }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.waiting_bytes >= WAITING_BYTES_MAX
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting_bytes > 0
    }

    pub(crate) fn push(&mut self, peer: &Arc<Peer>, message: RemoteMessage) {
        if message.to.server_type() == ServerType::NETWORK {
            if message.kind == INTRODUCTION {
                peer.introduced(Introduction::from_bytes(&message.bytes, self.network.is_trusted()));
            } else if message.kind == REFUSAL
                && let Some(port) = message.bytes.try_into().ok().and_then(|bytes| Address::from_bytes(bytes).ok())
            {
                peer.refused(port);
            }
            return;
        }
        self.waiting_bytes += weight(&message);
        self.ports.entry(message.to).or_default().waiting.push_back((Arc::clone(peer), message));
    }

    /// Delivers what can be delivered now. Waits for nobody but owners that have to be asked for their memory.
    pub(crate) fn deliver(&mut self) {
        if self.waiting_bytes == 0 {
            return;
        }
        let Delivery { host, network, ports, groups, waiting_bytes } = self;
        for (to, destination) in ports.iter_mut() {
            while let Some((peer, message)) = destination.waiting.front() {
                let sent = if to.xid().is_some() {
                    deliver_to_group(host, groups, message)
                } else {
                    deliver_to_port(host, network, &mut destination.lane, message)
                };
                match sent {
                    Err(SendError::Full { .. }) => break,
                    Err(_) => {
                        network.counters.undelivered.fetch_add(1, Ordering::Relaxed);
                        refuse(network, peer, *to);
                        destination.lane = None;
                    }
                    Ok(()) => {
                        network.counters.delivered.fetch_add(1, Ordering::Relaxed);
                    }
                }
                *waiting_bytes -= weight(message);
                destination.waiting.pop_front();
            }
        }
        // Groups are as many as transactions, and other sites can think of any address.
        ports.retain(|_, destination| destination.lane.is_some() || !destination.waiting.is_empty());
    }
}

fn weight(message: &RemoteMessage) -> usize {
    message.bytes.len() + 64
}

fn deliver_to_port(
    host: &Host,
    network: &Inner,
    lane: &mut Option<LaneSender>,
    message: &RemoteMessage,
) -> Result<(), SendError> {
    let closed = SendError::PortClosed { address: message.to };
    if message.to.site() != Some(network.site) {
        return Err(closed);
    }
    if let Some(open) = lane {
        let sent = open.send_carried(message.from, message.kind, &message.bytes, Patience::None);
        if sent != Err(closed) {
            return sent;
        }
    }
    // The first message, or its owner has closed it and may have opened it again.
    let open = lane.insert(connect(host, network, message.to)?);
    open.send_carried(message.from, message.kind, &message.bytes, Patience::None)
}

fn connect(host: &Host, network: &Inner, to: Address) -> Result<LaneSender, SendError> {
    let ours = Address::port(to.instance(), ServerType::NETWORK, ServerInstance(0), network.site);
    LaneSender::connect(host, ours, to, ANSWER_WITHIN).map_err(|_| SendError::PortClosed { address: to })
}

fn deliver_to_group(
    host: &Host,
    groups: &mut HashMap<(Instance, ServerType), Option<GroupSender>>,
    message: &RemoteMessage,
) -> Result<(), SendError> {
    let to = message.to;
    let Some(xid) = to.xid() else { return Ok(()) };
    let sender = groups.entry((to.instance(), to.server_type())).or_insert_with(|| {
        let bus = Bus::join(host, to.instance(), to.server_type(), 0o600, &Access::OwnUser).ok()?;
        GroupSender::new(bus, to).ok()
    });
    match sender {
        Some(sender) => sender.send_carried(message.from, xid, message.kind, &message.bytes),
        None => Err(SendError::PortClosed { address: to }),
    }
}

/// Tells the senders of a site that a port takes nothing, if there is a session to it; a group has nobody to be told.
fn refuse(network: &Inner, peer: &Peer, port: Address) {
    if port.xid().is_some() {
        return;
    }
    let ours = Address::port(port.instance(), ServerType::NETWORK, ServerInstance(0), network.site);
    let theirs = Address::port(port.instance(), ServerType::NETWORK, ServerInstance(0), peer.site);
    let message = (theirs, ours, REFUSAL, &port.to_bytes()[..]);
    peer.submit_opening(network, message);
}
