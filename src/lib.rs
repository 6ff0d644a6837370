//! Rubicon: a streaming-aware relay between applications and LLM providers.
//!
//! # Code map
//!
//! In reading order. `client bytes → Contract → Plan → attempt → block → Reading → Effect → client bytes`, and on trouble
//! `failure → Class → Next → attempt`; a tool call `Plan → Claim → run → outcome → answer`, each step on disk before the next but the plan,
//! which is kept behind. *Pure* rooms name no runtime, socket, file, clock or random source (`tests/tidy/`
//! holds them to it); time and randomness are arguments.
//!
//! | room | what it is | pure |
//! | --- | --- | --- |
//! | [`relay`] | drives one client request; the only room that sees all the others | |
//! | [`contract`] | what a request demands: body facts, headers, the tightened envelope | yes |
//! | [`plan`] | which routes may serve it, in what order, and why not the others | yes |
//! | [`gate`] | is a route open *now*? kill switches, breakers, limits | yes |
//! | [`control`] | what operators decided, durable and journaled; which account issued which state | |
//! | [`attempt`] | what next? attempts, time, added latency, cost; retry, fail over or stop | yes |
//! | [`upstream`] | the only HTTP client of the relay | |
//! | [`wire`] | bytes to SSE blocks and back; bounded; knows no provider | yes |
//! | [`protocol`] | blocks to meaning, a folder a dialect; *the* definition of "visible" | yes |
//! | [`classify`] | one class for each failure, and the wait it asks for | yes |
//! | [`boundary`] | may we still change our mind? the state machine and its hold | yes |
//! | [`accept`] | does the answer keep the contract? tool calls whole and fitting, text in its declared form | yes |
//! | [`tool`] | a tool: its arguments against its schema, one run of it and the verdict on the run, its probe, what people see, what is erased | |
//! | [`reply`] | what a caller is told, printed by each dialect in its own shape | yes |
//! | [`config`] | the file and what it includes, all problems, the checked settings, what differs between two loads | |
//! | [`executions`] | the data plane's calls of the ledger: claims, completions, records, tools that the relay runs (`EXECUTIONS.md`) | |
//! | [`admin`] | the operators' listener: tokens, roles, switches, unknown executions and their verdicts, the journal | |
//! | [`check`] | failovers that can never act, what is off and why, what ends soon, what nobody tried | |
//! | [`serve`] | composition root: listener, connections, CORS, reload, numbered shutdown | |
//! | [`cli`], [`demo`], [`mock`] | subcommands, the demo's scenes, the scripted provider | |
//! | [`telemetry`] | what can be watched: log, event lines, metrics, traces; every name of them in one file | |
//! | [`ids`], [`clock`], [`class`] | words below every room: names, time, failure classes | |
//! | [`rubicon_ledger`] | the crate below all of them (`ledger/`): identity of a call, the rules of a record's life, one writer, the store, the journal | its `machine` |
//!
//! # Invariants
//!
//! 1. The bytes of one attempt, and of one only, reach a client ([`boundary`]: the phase never goes back).
//! 2. A stream ends cleanly only after the provider's own end ([`protocol::signal::Ending`]); any other end is an error frame,
//!    on the wire before the abort ([`relay::transport`]).
//! 3. One controller decides about every further attempt ([`attempt::control`]); the HTTP client never resends by itself ([`upstream`]).
//! 4. What is not known is visible ([`protocol::signal`]).
//! 5. Every buffer, queue, wait and table has a named bound and says what happens at it.
//! 6. No tool runs without a claim that is on disk ([`tool::run`], [`rubicon_ledger::Ledger::claim`]); of the claims of one intent one gets
//!    `execute`, and after it none that rests on a guess (`ledger/src/machine/`: the only place that decides).
//! 7. An outcome is on disk before the first byte of it is told ([`tool::run`], `executions/settle.rs`); where it cannot be stored nobody is told.
//! 8. What is not proved is `unknown` ([`tool::verdict`]), and leaves that state by evidence only.
//! 9. Neither a plan nor a sighting waits for the disk, and no claim waits for either (`relay/seat.rs`).
//!
//! # Who may go where, and when it is too much
//!
//! A request passes three doors, each of which says no at once, in the caller's dialect and with `Retry-After`:
//!
//! 1. *Into the relay* ([`relay::admission`]): `max_in_flight` and `memory_bytes`, before the body is read; 503.
//! 2. *Onto a route* ([`gate::board`]): kill switches, the breaker, `limits`, `failover_limits`, asked by the plan and again when an
//!    attempt begins (`relay/passage.rs`); the [`gate::Pass`] is held to the end of the stream. Nothing left before any call: 503 where a
//!    breaker or an operator closed it, 429 where only limits did.
//! 3. *To one more attempt* ([`gate::retry_budget`]): a share of the operations of the route that was asked first; 424 as after any
//!    spent budget.
//!
//! # Where this differs from DESIGN.md, and why
//!
//! - *The driver is one `async fn` behind the response body* ([`relay::emit`]) and not a hand-written state machine of its own: the
//!   pure decisions are in `boundary` and `control`, and what is left reads top to bottom. It is still polled by hyper's side of the
//!   client, so there is no task and no channel per event.
//! - *`protocol::signal::Reading`* (what it shows, and a fault) replaces the flat `Signal`: one chunk may show text, carry usage and
//!   finish at once; usage and end are asked of the reader.
//! - *hyper-util's client* stands in for reqwest on the attempt path ([`upstream`]): it can be made to prove "no hidden resend" and
//!   whether any byte was sent. reqwest is the tests' client.
//! - *A kill ends no attempt that is held* (DESIGN's boundary table has one): SPEC's "effective for new attempts" is what is kept.
//! - *Two rooms where it has one `tool/`*: what knows a tool and runs it ([`tool`]) lies below the relay, which asks it about arguments; the HTTP
//!   calls ([`executions`]) lie above, since they need the relay's admission, callers and roots. Operators' calls are the admin side's.
//! - *A tool's call has a connection of its own* (hyper's, [`tool::sender`]) and not one of a pool: a pooled one may be dead already, and only a new
//!   one tells how many bytes of *this* request left. That is the proof of `not_executed`.
//! - *Switches of operators are in two journals*: [`control`] keeps its own, from before there was a ledger, and the ledger's has each as a remark,
//!   so that one chain tells the order of all that people did. `verify` walks along both.
//! - *`transcript/`, `queue/`* come with the capabilities that need them; a key of theirs is refused as
//!   `not_built_yet`.

// They panic where the reader has gone, and wait where it does not read: `telemetry::say` does neither.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

pub mod accept;
pub mod admin;
pub mod attempt;
pub mod boundary;
pub mod check;
pub mod class;
pub mod classify;
pub mod cli;
pub mod clock;
pub mod config;
pub mod contract;
pub mod control;
pub mod demo;
pub mod executions;
pub mod gate;
pub mod ids;
pub mod mock;
pub mod plan;
pub mod protocol;
pub mod relay;
pub mod reply;
pub mod serve;
pub mod telemetry;
pub mod tool;
pub mod upstream;
pub mod wire;
