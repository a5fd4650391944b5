//! Child processes that never outlive this one.
//!
//! Statics are not dropped at the end of a test binary, a panic may abort, and somebody may kill
//! it: so a small shell script, in a process group of its own, holds the other end of a pipe. When
//! the pipe closes, for whatever reason, it ends what was started and removes what was written.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, Mutex};

/// SIGQUIT is PostgreSQL's immediate shutdown and PgBouncer's too; who still runs after five seconds
/// is killed. A zombie (Z) has ended: nobody may be there to wait for it.
const REAPER: &str = r#"
while read -r what arg; do
  case $what in
    started) pids="$pids $arg" ;;
    ended)   pids=$(for p in $pids; do [ "$p" = "$arg" ] || printf '%s ' "$p"; done) ;;
    wrote)   set -- "$@" "$arg" ;;
  esac
done
[ -z "$pids" ] || kill -QUIT $pids
for p in $pids; do
  n=0
  while grep -q '^State:.[^Z]' "/proc/$p/status" && [ $n -lt 100 ]; do n=$((n + 1)); sleep 0.05; done
  kill -KILL "$p"
done
rm -rf "$@"
"#;

static REAPER_PROCESS: LazyLock<Mutex<Child>> = LazyLock::new(|| {
    let mut reaper = Command::new("sh");
    reaper.args(["-c", REAPER]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    Mutex::new(reaper.process_group(0).spawn().expect("sh must start"))
});

fn tell_reaper(what: &str, arg: &str) {
    let mut reaper = REAPER_PROCESS.lock().unwrap_or_else(|broken| broken.into_inner());
    let pipe = reaper.stdin.as_mut().expect("stdin is piped");
    writeln!(pipe, "{what} {arg}").expect("the reaper lives as long as this process");
}

/// Has `folder` and all in it removed when this process ends.
pub fn remove_at_the_end(folder: &Path) {
    tell_reaper("wrote", folder.to_str().expect("paths are UTF-8"));
}

/// Sends `signal` (a name without SIG) to a process. False when there is no such process.
pub fn signal(pid: u32, signal: &str) -> bool {
    let sent = Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).output();
    sent.expect("kill must start").status.success()
}

/// What Linux has in /proc of a process's memory, in KiB: `VmHWM`, the most that was resident, or
/// `VmSize`. None where the process has ended.
pub fn memory_of(pid: i32, what: &str) -> Option<usize> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(&format!("{what}:")))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The processes that this one has started and that still run.
fn children_of(pid: u32) -> Vec<u32> {
    let started = format!("PPid:\t{pid}\n");
    let processes = std::fs::read_dir("/proc").expect("the list of processes").flatten();
    let is_child = |pid: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
        status.is_ok_and(|status| status.contains(&started))
    };
    let pids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    pids.filter(is_child).collect()
}

fn signal_all(pids: &[u32], signal: &str) {
    let pids = pids.iter().map(u32::to_string);
    // Some may have ended meanwhile.
    let _sent = Command::new("kill").arg(format!("-{signal}")).args(pids).output();
}

/// Whether a process has this folder, given without symbolic links, as its current directory.
pub fn works_in(folder: &Path) -> bool {
    let processes = std::fs::read_dir("/proc").expect("the list of processes");
    // Who has ended meanwhile has no directory any more.
    let directories = processes.flatten().map(|process| process.path().join("cwd").read_link());
    directories.flatten().any(|directory| directory == folder)
}

/// A child that ends with this value, or at the latest with this process.
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts `command` in a process group of its own, so that a Ctrl-C at the terminal reaches
    /// only us and the reaper still does its work.
    pub fn spawn(command: &mut Command) -> Process {
        let child = command.process_group(0).stdin(Stdio::null()).spawn();
        let child = child.unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        tell_reaper("started", &child.id().to_string());
        Process { child }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("the child is ours").is_some()
    }

    /// Sends `signal` and waits for the end.
    pub fn end(&mut self, name: &str) {
        if !self.has_ended() {
            signal(self.id(), name);
        }
        self.child.wait().expect("the child is ours");
        tell_reaper("ended", &self.id().to_string());
    }
}

impl Process {
    /// Ends the process and its children, as the end of their machine does: none of them sees that
    /// another has gone. The child that would start new ones is stopped first, and ended last.
    pub fn die(&mut self) {
        signal(self.id(), "STOP");
        let children = children_of(self.id());
        signal_all(&children, "STOP");
        signal_all(&children, "KILL");
        self.end("KILL");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end("QUIT");
    }
}

/// Runs `command` to its end and returns what it printed.
///
/// # Panics
/// When it fails, with what it printed.
pub fn output_of(command: &mut Command) -> String {
    let done =
        command.output().unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
    let [printed, errors] = [&done.stdout, &done.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(done.status.success(), "{command:?} failed: {errors}\n{printed}");
    String::from_utf8(done.stdout).expect("text")
}
