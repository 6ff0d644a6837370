//! Is the process over its `memory_bytes`? Measured a few times a second; while it is, new work is shed.
//!
//! In: what the kernel tells under `/proc` and `/sys/fs/cgroup`. Out: [`Admission`](super::admission::Admission) told. The resident
//! size is read from `status` and not from `statm`, which counts in pages of a size that only a system call tells. Where the kernel
//! tells nothing (not Linux) nothing is ever shed for memory, and the log says so once.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::app::App;

/// How often. A burst of new streams fills some ten megabytes in that time, far less than the half that is left by default.
const EVERY: Duration = Duration::from_millis(200);

/// Work is taken again under this share of the limit (a percentage), so that it is not shed and taken with every stream that ends.
const RESUME_PERCENT: u64 = 95;

/// Watches until dropped.
pub async fn watch(app: Arc<App>) {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let half = machine_bytes(&read).map(|bytes| bytes / 2);
    if resident_bytes(&read).is_none() || (half.is_none() && app.current().settings.server.memory_bytes.is_none()) {
        tracing::info!("memory_bytes: this system does not tell; no work is shed for memory");
    }
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let limit = app.current().settings.server.memory_bytes.or(half);
        let (Some(limit), Some(resident)) = (limit, resident_bytes(&read)) else { continue };
        let short = is_short(app.admission.is_memory_short(), resident, limit);
        if app.admission.set_memory_short(short) {
            if short {
                tracing::warn!(resident, limit, "memory is short: new requests are shed");
            } else {
                tracing::info!(resident, limit, "memory is enough again");
            }
        }
    }
}

/// Over the limit new work is shed, until clearly under it.
fn is_short(was_short: bool, resident: u64, limit: u64) -> bool {
    let bound = if was_short { limit / 100 * RESUME_PERCENT } else { limit };
    resident > bound
}

/// The resident memory of this process, bytes.
fn resident_bytes(read: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    kib_line(&read("/proc/self/status")?, "VmRSS:")
}

/// What this process may use at most: the smallest of the machine's memory and the limits of its cgroups (v2 and v1), bytes.
/// `read` gives a file's text.
fn machine_bytes(read: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    let machine = read("/proc/meminfo").and_then(|text| kib_line(&text, "MemTotal:"));
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    let limits = groups.lines().flat_map(limit_files).filter_map(|file| {
        // `max` is none; v1 says "none" with a number near 2^63, which the machine's own undercuts.
        read(&file)?.trim().parse::<u64>().ok()
    });
    limits.chain(machine).min().filter(|bytes| *bytes > 0)
}

/// The limit files of one line of `/proc/self/cgroup` (`0::/a/b`, `4:cpu,memory:/a/b`), of the group and of all above it: each binds.
/// Within a container the root of the mounted tree is the container's own group, whatever the line says.
fn limit_files(line: &str) -> Vec<String> {
    let mut fields = line.splitn(3, ':');
    let (Some(number), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
        return Vec::new();
    };
    let (root, file) = if number == "0" && controllers.is_empty() {
        ("/sys/fs/cgroup", "memory.max")
    } else if controllers.split(',').any(|name| name == "memory") {
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
    } else {
        return Vec::new();
    };
    let mut files = vec![format!("{root}/{file}")];
    let mut group = root.to_owned();
    for name in path.split('/').filter(|name| !name.is_empty() && *name != "..") {
        group = format!("{group}/{name}");
        files.push(format!("{group}/{file}"));
    }
    files
}

/// `NAME   123 kB` in a file of such lines.
fn kib_line(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const MEMINFO: (&str, &str) =
        ("/proc/meminfo", "MemTotal:       16777216 kB\nMemFree:          123456 kB\nMemAvailable:    1000000 kB\n");

    fn bytes(files: &[(&str, &str)]) -> Option<u64> {
        machine_bytes(&|path| files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned()))
    }

    #[test]
    fn the_smallest_limit_binds() {
        let v2 = ("/proc/self/cgroup", "0::/kubepods/pod1/c1\n");
        let v1 = ("/proc/self/cgroup", "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n1:name=systemd:/docker/x\n");
        let none = ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        for (what, files, expected) in [
            ("a machine", &[MEMINFO][..], Some(16 * GIB)),
            ("a group without a limit", &[MEMINFO, v2, ("/sys/fs/cgroup/memory.max", "max\n")], Some(16 * GIB)),
            ("a container's own root", &[MEMINFO, v2, ("/sys/fs/cgroup/memory.max", "1073741824\n")], Some(GIB)),
            (
                "a group above",
                &[
                    MEMINFO,
                    v2,
                    ("/sys/fs/cgroup/kubepods/pod1/c1/memory.max", "max\n"),
                    ("/sys/fs/cgroup/kubepods/pod1/memory.max", "2147483648\n"),
                ],
                Some(2 * GIB),
            ),
            (
                "version 1",
                &[MEMINFO, v1, ("/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "1073741824")],
                Some(GIB),
            ),
            ("version 1 without a limit", &[MEMINFO, v1, none], Some(16 * GIB)),
            (
                "a limit above the machine",
                &[MEMINFO, v2, ("/sys/fs/cgroup/memory.max", "99999999999999")],
                Some(16 * GIB),
            ),
            ("a group only", &[v2, ("/sys/fs/cgroup/memory.max", "1073741824")], Some(GIB)),
            ("nothing", &[], None),
            ("nonsense", &[("/proc/meminfo", "MemTotal: many kB\n"), ("/proc/self/cgroup", "x\n0:\n")], None),
        ] {
            assert_eq!(bytes(files), expected, "{what}");
        }
    }

    #[test]
    fn the_resident_size_is_read() {
        let status = "Name:\trubicon\nVmPeak:\t  999 kB\nVmRSS:\t   12345 kB\nThreads:\t3\n";
        assert_eq!(resident_bytes(&|_| Some(status.to_owned())), Some(12345 * 1024));
        assert_eq!(resident_bytes(&|_| None), None);
        if cfg!(target_os = "linux") {
            let real = resident_bytes(&|path| std::fs::read_to_string(path).ok()).expect("on Linux");
            assert!(real > 1024 * 1024, "{real}");
        }
    }

    #[test]
    fn it_is_shed_over_the_limit_and_taken_again_clearly_under_it() {
        for (was, resident, now) in
            [(false, 1000, false), (false, 1001, true), (true, 1000, true), (true, 951, true), (true, 950, false)]
        {
            assert_eq!(is_short(was, resident, 1000), now, "{was} {resident}");
        }
    }
}
