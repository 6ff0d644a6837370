//! Who may come in: `max_in_flight` requests at once, and none while the process holds more memory than it may.
//!
//! In: the limit of the moment (it changes with a reload) and what `memory.rs` measures. Out: a [`Permit`] that counts one request
//! until its last byte, or why the request is shed. What is shed is shed before its body is read and may be sent again; what runs
//! goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// The count, and whether memory is short.
#[derive(Debug, Default)]
pub struct Admission {
    taken: AtomicUsize,
    memory_short: AtomicBool,
    /// Told whenever a permit comes back.
    back: Notify,
}

/// One request in flight.
#[derive(Debug)]
pub struct Permit(Arc<Admission>);

/// Why a request is shed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shed {
    /// `max_in_flight` requests are in flight.
    InFlight,
    /// The process is over `memory_bytes`.
    Memory,
}

impl Shed {
    /// The code that callers, logs and metrics show.
    pub fn name(self) -> &'static str {
        match self {
            Self::InFlight => "overloaded",
            Self::Memory => "memory",
        }
    }

    /// What a caller is told.
    pub fn message(self) -> &'static str {
        match self {
            Self::InFlight => "The relay has as many requests as it may take.",
            Self::Memory => "The relay holds as much memory as it may.",
        }
    }
}

impl Admission {
    /// Lets one more in, if fewer than `max` are.
    ///
    /// # Errors
    /// Why it is shed.
    pub fn enter(self: &Arc<Self>, max: usize) -> Result<Permit, Shed> {
        if self.memory_short.load(Ordering::Relaxed) {
            return Err(Shed::Memory);
        }
        let one_more = |taken: usize| (taken < max).then_some(taken + 1);
        match self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more) {
            Ok(_) => Ok(Permit(Arc::clone(self))),
            Err(_) => Err(Shed::InFlight),
        }
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }

    /// Whether new work is shed for want of memory.
    pub fn is_memory_short(&self) -> bool {
        self.memory_short.load(Ordering::Relaxed)
    }

    /// Sheds new work, or takes it again. Returns whether that is a change.
    pub fn set_memory_short(&self, short: bool) -> bool {
        self.memory_short.swap(short, Ordering::Relaxed) != short
    }

    /// Waits until at most `count` requests are in flight.
    pub async fn at_most(&self, count: usize) {
        loop {
            // Registered before it looks, or the last permit could come back in between.
            let back = self.back.notified();
            if self.in_flight() <= count {
                return;
            }
            back.await;
        }
    }

    /// Waits until none is in flight.
    pub async fn idle(&self) {
        self.at_most(0).await;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::SeqCst);
        self.0.back.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_count_is_exact_and_the_limit_may_change() {
        let admission = Arc::new(Admission::default());
        let first = admission.enter(2).expect("free");
        let second = admission.enter(2).expect("free");
        assert_eq!(admission.enter(2).err(), Some(Shed::InFlight));
        let third = admission.enter(3).expect("the limit was raised");
        assert_eq!(admission.in_flight(), 3);
        drop(third);
        assert_eq!(admission.enter(1).err(), Some(Shed::InFlight), "lowered: those that run go on");
        let waiting = tokio::spawn({
            let admission = Arc::clone(&admission);
            async move { admission.idle().await }
        });
        tokio::task::yield_now().await;
        drop(first);
        admission.at_most(1).await;
        assert!(!waiting.is_finished());
        drop(second);
        waiting.await.expect("idle");
        admission.idle().await;
    }

    #[test]
    fn short_memory_sheds_new_work_only() {
        let admission = Arc::new(Admission::default());
        let _running = admission.enter(10).expect("free");
        assert!(admission.set_memory_short(true) && !admission.set_memory_short(true));
        assert_eq!((admission.enter(10).err(), admission.in_flight()), (Some(Shed::Memory), 1));
        assert!(admission.set_memory_short(false));
        assert!(admission.enter(10).is_ok());
    }
}
