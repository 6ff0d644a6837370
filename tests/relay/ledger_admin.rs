//! What operators see of executions and what they may do about an unknown one: roles, versions, the second person, lists, bulk; and the
//! one journal that has it all.

use http::Method;
use rubicon::serve::Server;
use serde_json::{Value, json};

use crate::harness::{Answered, Http, client, send, url};
use crate::operators::{EVERYBODY, Who, admin, change, get, request, told, with_operators};
use crate::setup::Setup;

/// Tools of the tests: one that one person decides about, one that takes two, one that hides part of its arguments.
pub(crate) const TOOLS: &str = "[tool.mail]\neffect = \"write\"\nowner = \"support\"\nsimilar = \"off\"\nsummary = \"Mail {/to}\"\n\
     [tool.pay]\neffect = \"write\"\nowner = \"payments\"\nimpact = \"high\"\nkey_fields = [\"/order\"]\n\
     summary = \"Pay {/amount} for {/order}\"\nredact = [\"/card\"]\n";

/// A relay with tools and operators; nothing is kept on disk.
pub(crate) async fn with_tools() -> Server {
    with_operators(Setup::primary("http://127.0.0.1:9").tables(TOOLS)).await
}

/// Claims a call, as the application does.
pub(crate) async fn claim(base: &str, root: &str, tool: &str, arguments: Value) -> Answered {
    let body = json!({ "root": root, "tool": tool, "arguments": arguments });
    post(base, "/v1/executions", &body).await
}

async fn post(base: &str, path: &str, body: &Value) -> Answered {
    let request = client(Http::One).post(format!("{base}{path}")).header("content-type", "application/json");
    send(request.body(body.to_string())).await
}

/// A claim that runs, and how its owner says it ended; its key.
pub(crate) async fn ran(base: &str, root: &str, tool: &str, arguments: Value, outcome: &str) -> String {
    let claimed = claim(base, root, tool, arguments).await;
    assert_eq!(claimed.status, 201, "{}", claimed.text());
    let claimed = claimed.json();
    let key = claimed["execution"]["key"].as_str().expect("a key").to_owned();
    let body = json!({ "lease_token": claimed["lease_token"], "outcome": outcome });
    let completed = post(base, &format!("/v1/executions/{key}/complete"), &body).await;
    assert_eq!(completed.status, 200, "{}", completed.text());
    key
}

fn data(relay: &Server) -> String {
    url(relay, "")
}

fn path(key: &str, verb: &str) -> String {
    if verb.is_empty() { format!("/admin/v1/executions/{key}") } else { format!("/admin/v1/executions/{key}/{verb}") }
}

/// Its version as its `ETag` tells it.
async fn etag(base: &str, key: &str) -> String {
    get(base, &path(key, ""), Who::Viewer).await.header("etag").to_owned()
}

fn resolve(outcome: &str) -> Value {
    json!({ "outcome": outcome, "reason": "seen at the other side" })
}

#[tokio::test]
async fn each_role_may_do_its_part_and_no_more() {
    let relay = with_tools().await;
    let (base, data) = (admin(&relay), data(&relay));
    let key = ran(&data, "r1", "mail", json!({ "to": "a" }), "unknown").await;
    let bulk = json!({ "filter": { "state": "planned" }, "action": "note", "dry_run": true });
    let verbs: [(&str, Who, Value); 9] = [
        (&path(&key, "resolve"), Who::Operator, json!({})),
        (&path(&key, "probe"), Who::Operator, json!({})),
        (&path(&key, "notes"), Who::Operator, json!({})),
        (&path(&key, "assign"), Who::Operator, json!({})),
        (&path(&key, "confirm"), Who::Approver, json!({})),
        (&path(&key, "release"), Who::Approver, json!({})),
        (&path(&key, "confirm-claim"), Who::Approver, json!({})),
        ("/admin/v1/executions/bulk", Who::Approver, bulk),
        ("/admin/v1/gap/end", Who::Approver, json!({})),
    ];
    let rank = |who: Who| EVERYBODY.iter().position(|known| *known == who).expect("a role");
    for (path, least, body) in verbs {
        for who in EVERYBODY {
            let answered = change(&base, path, who, "\"999\"", body.clone()).await;
            let (status, code) = told(&answered);
            match who {
                Who::Nobody | Who::Stranger => assert_eq!(status, 401, "{path} {who:?}"),
                _ if rank(who) < rank(least) => {
                    assert_eq!((status, &*code), (403, "role_too_low"), "{path} {who:?}");
                }
                _ => {
                    assert!(status == 200 || code != "role_too_low" && status != 401, "{path} {who:?}: {status} {code}")
                }
            }
        }
    }
    for who in EVERYBODY {
        let reads = !matches!(who, Who::Nobody | Who::Stranger);
        for path in ["/admin/v1/executions", &path(&key, "")] {
            assert_eq!(get(&base, path, who).await.status, if reads { 200 } else { 401 }, "{path} {who:?}");
        }
    }
    // None of it changed anything: every one named a version that is not there, or nothing.
    assert_eq!(get(&base, &path(&key, ""), Who::Viewer).await.json()["state"], "unknown");
}

#[tokio::test]
async fn an_unknown_is_resolved_by_the_version_that_was_seen() {
    let relay = with_tools().await;
    let (base, data) = (admin(&relay), data(&relay));
    let key = ran(&data, "r1", "mail", json!({ "to": "a@example.test" }), "unknown").await;
    let shown = get(&base, &path(&key, ""), Who::Viewer).await;
    let (tag, view) = (shown.header("etag").to_owned(), shown.json());
    assert_eq!(tag, format!("\"{}\"", view["version"]));
    assert_eq!(
        (&view["state"], &view["owner"], &view["summary"]),
        (&json!("unknown"), &json!("support"), &json!("Mail a@example.test"))
    );
    assert_eq!((&view["arguments"], &view["tenant"].is_string()), (&json!({ "to": "a@example.test" }), &true));
    assert!(view["history"].as_array().is_some_and(|lines| lines.len() >= 2), "{view}");

    let post = path(&key, "resolve");
    let missing = send(request(&base, Method::POST, &post, Who::Operator).body(resolve("succeeded").to_string())).await;
    assert_eq!(told(&missing), (428, "precondition_required".to_owned()));
    assert_eq!(told(&change(&base, &post, Who::Operator, "*", resolve("succeeded")).await).0, 428);
    let stale = change(&base, &post, Who::Operator, "\"999\"", resolve("succeeded")).await;
    assert_eq!((told(&stale), &stale.json()["version"]), ((412, "version_mismatch".to_owned()), &view["version"]));
    assert_eq!(stale.header("etag"), tag);
    for (body, code) in [
        (json!({ "outcome": "succeeded" }), "reason_missing"),
        (json!({ "outcome": "succeeded", "reason": "  " }), "reason_missing"),
        (json!({ "outcome": "succeeded", "reason": "a\u{1b}[2J" }), "invalid_reason"),
        (json!({ "outcome": "unknown", "reason": "x" }), "invalid_outcome"),
        (json!({ "reason": "x" }), "invalid_outcome"),
        (json!({ "outcome": "succeeded", "reason": "x", "outcom": 1 }), "invalid_body"),
        (json!({ "outcome": "not_executed", "reason": "x", "result": 1 }), "invalid_body"),
        (json!([]), "invalid_body"),
    ] {
        assert_eq!(
            told(&change(&base, &post, Who::Operator, &tag, body.clone()).await),
            (400, code.to_owned()),
            "{body}"
        );
    }
    assert_eq!(etag(&base, &key).await, tag, "refused: nothing is recorded");

    let body = "{\"outcome\":\"succeeded\",\"external_reference\":\"m-17\",\"reason\":\"in the outbox\",\
                \"result\":{ \"id\" : 9007199254740993, \"cost\":1.10 }}";
    let asked = request(&base, Method::POST, &post, Who::Operator).header("if-match", &tag).body(body);
    let resolved = send(asked).await;
    assert_eq!(resolved.status, 200, "{}", resolved.text());
    let now = resolved.json();
    assert_eq!(
        (&now["state"], &now["reconciliation"], &now["changed"]),
        (&json!("succeeded"), &json!("resolved"), &json!(true))
    );
    assert_ne!(resolved.header("etag"), tag);
    // The caller's retry gets what the operator put there, byte for byte.
    let again = claim(&data, "r1", "mail", json!({ "to": "a@example.test" })).await;
    assert_eq!((again.status, &again.json()["decision"]), (200, &json!("use_result")));
    assert!(again.text().contains("{ \"id\" : 9007199254740993, \"cost\":1.10 }"), "{}", again.text());
    assert_eq!(again.json()["execution"]["external_reference"], "m-17");
    // Terminal: nobody changes it any more.
    let late = change(&base, &post, Who::Approver, resolved.header("etag"), resolve("not_executed")).await;
    assert_eq!(told(&late).0, 409, "{}", late.text());
    assert_eq!(get(&base, &path(&key, ""), Who::Viewer).await.json()["state"], "succeeded");
    let line = now_of(&base, &key).await;
    assert_eq!(
        (&line["by"], &line["reason"], &line["to"]),
        (&json!("oli"), &json!("in the outbox"), &json!("succeeded"))
    );
}

/// The newest line of its history.
async fn now_of(base: &str, key: &str) -> Value {
    let view = get(base, &path(key, ""), Who::Viewer).await.json();
    view["history"].as_array().and_then(|lines| lines.last()).cloned().unwrap_or_default()
}

#[tokio::test]
async fn a_high_impact_verdict_takes_a_second_person() {
    let relay = with_tools().await;
    let (base, data) = (admin(&relay), data(&relay));
    let arguments = json!({ "order": 7, "amount": "10.00", "card": "4111-1111" });
    let key = ran(&data, "r1", "pay", arguments.clone(), "unknown").await;
    let tag = etag(&base, &key).await;
    let first = change(&base, &path(&key, "resolve"), Who::Approver, &tag, resolve("not_executed")).await;
    assert_eq!(first.status, 200, "{}", first.text());
    let view = first.json();
    assert_eq!((&view["state"], &view["reconciliation"]), (&json!("unknown"), &json!("pending_second")));
    assert_eq!((&view["pending"]["outcome"], &view["pending"]["by"]), (&json!("not_executed"), &json!("ana")));
    // The first person is no second one.
    let same = change(&base, &path(&key, "confirm"), Who::Approver, first.header("etag"), json!({})).await;
    assert_eq!(told(&same), (409, "same_person".to_owned()));
    // What is hidden is hidden everywhere.
    for path in ["/admin/v1/executions", &path(&key, "")] {
        let shown = get(&base, path, Who::Viewer).await;
        assert!(!shown.text().contains("4111") && shown.text().contains("Pay 10.00 for 7"), "{}", shown.text());
    }
    // Another verdict of the other person takes its place, and the first may then confirm that.
    let other = change(&base, &path(&key, "resolve"), Who::Operator, first.header("etag"), resolve("succeeded")).await;
    assert_eq!(other.status, 200, "{}", other.text());
    let confirmed = change(&base, &path(&key, "confirm"), Who::Approver, other.header("etag"), json!({})).await;
    assert_eq!((confirmed.status, &confirmed.json()["state"]), (200, &json!("succeeded")), "{}", confirmed.text());
    assert_eq!(claim(&data, "r1", "pay", arguments).await.json()["decision"], "use_result");
}

#[tokio::test]
async fn what_did_not_execute_runs_again_only_after_a_release() {
    let relay = with_tools().await;
    let (base, data) = (admin(&relay), data(&relay));
    let arguments = json!({ "to": "b" });
    let key = ran(&data, "r1", "mail", arguments.clone(), "unknown").await;
    let early =
        change(&base, &path(&key, "release"), Who::Approver, &etag(&base, &key).await, json!({ "reason": "x" })).await;
    assert_eq!(told(&early).0, 409, "{}", early.text());
    let tag = etag(&base, &key).await;
    let resolved = change(&base, &path(&key, "resolve"), Who::Operator, &tag, resolve("not_executed")).await;
    assert_eq!((resolved.status, &resolved.json()["failure"]), (200, &json!("not_executed")), "{}", resolved.text());
    assert_ne!(claim(&data, "r1", "mail", arguments.clone()).await.status, 201);
    let tag = etag(&base, &key).await;
    let released = change(&base, &path(&key, "release"), Who::Approver, &tag, json!({ "reason": "again" })).await;
    assert_eq!(released.status, 200, "{}", released.text());
    assert_eq!(claim(&data, "r1", "mail", arguments.clone()).await.status, 201);
    assert_ne!(claim(&data, "r1", "mail", arguments).await.status, 201, "one run, not two");
}

#[tokio::test]
async fn notes_and_assignment_leave_the_state_and_a_probe_needs_one() {
    let relay = with_tools().await;
    let (base, data) = (admin(&relay), data(&relay));
    let key = ran(&data, "r1", "mail", json!({ "to": "c" }), "unknown").await;
    let noted =
        change(&base, &path(&key, "notes"), Who::Operator, &etag(&base, &key).await, json!({ "text": "asked bob" }))
            .await;
    assert_eq!((noted.status, &noted.json()["state"]), (200, &json!("unknown")), "{}", noted.text());
    assert_eq!(now_of(&base, &key).await["reason"], "asked bob");
    let tag = etag(&base, &key).await;
    let assigned = change(&base, &path(&key, "assign"), Who::Operator, &tag, json!({ "to": "bob" })).await;
    assert_eq!((assigned.status, &assigned.json()["assigned_to"]), (200, &json!("bob")), "{}", assigned.text());
    let tag = etag(&base, &key).await;
    let nobody = change(&base, &path(&key, "assign"), Who::Operator, &tag, json!({ "to": null })).await;
    assert_eq!((nobody.status, &nobody.json()["assigned_to"]), (200, &Value::Null));
    let tag = etag(&base, &key).await;
    assert_eq!(
        told(&change(&base, &path(&key, "probe"), Who::Operator, &tag, json!({})).await),
        (409, "no_probe".to_owned())
    );
    for (verb, body) in [("notes", json!({})), ("notes", json!({ "text": " " })), ("assign", json!({}))] {
        assert_eq!(change(&base, &path(&key, verb), Who::Operator, &tag, body).await.status, 400, "{verb}");
    }
}

#[tokio::test]
async fn a_key_that_is_none_is_not_found() {
    let relay = with_tools().await;
    let base = admin(&relay);
    for key in [format!("ex_{}", "0".repeat(64)), "ex_1".to_owned(), "%FF".to_owned(), "bulk".to_owned()] {
        assert_eq!(told(&get(&base, &path(&key, ""), Who::Viewer).await).0 / 100, 4, "{key}");
        let resolved = change(&base, &path(&key, "resolve"), Who::Operator, "\"1\"", resolve("succeeded")).await;
        assert_eq!(told(&resolved), (404, "execution_not_found".to_owned()), "{key}");
    }
}

#[tokio::test]
async fn lists_are_filtered_and_paged() {
    let relay = with_tools().await;
    let (base, data) = (admin(&relay), data(&relay));
    let mut keys = Vec::new();
    for n in 0..5 {
        keys.push(ran(&data, &format!("r{n}"), "mail", json!({ "to": n }), "unknown").await);
    }
    let paid = ran(&data, "r9", "pay", json!({ "order": 1 }), "succeeded").await;
    let list = async |query: &str| get(&base, &format!("/admin/v1/executions{query}"), Who::Viewer).await;
    let found = |page: &Answered| -> Vec<String> {
        let page = page.json();
        let rows = page["executions"].as_array().expect("a list").clone();
        rows.iter().map(|row| row["key"].as_str().expect("a key").to_owned()).collect()
    };
    assert_eq!(found(&list("").await), [&keys[..], std::slice::from_ref(&paid)].concat());
    let first = list("?state=unknown&limit=2").await;
    let cursor = first.json()["next_cursor"].as_str().expect("more").to_owned();
    assert_eq!(found(&first), keys[..2]);
    let rest = list(&format!("?state=unknown&limit=100&cursor={cursor}")).await;
    assert_eq!((found(&rest), &rest.json()["next_cursor"]), (keys[2..].to_vec(), &Value::Null));
    for (query, expected) in [
        ("?tool=pay", vec![paid.clone()]),
        ("?owner=payments", vec![paid.clone()]),
        ("?root=r3", vec![keys[3].clone()]),
        ("?tool=pay&state=unknown", vec![]),
        ("?tenant=somebody", vec![]),
        ("?older_than=1h", vec![]),
        ("?operation=none", vec![]),
    ] {
        assert_eq!(found(&list(query).await), expected, "{query}");
    }
    assert!(list("?older_than=99999d").await.json()["executions"].as_array().is_some_and(Vec::is_empty));
    for bad in ["?state=lost", "?older_than=soon", "?limit=0", "?who=me", "?cursor=x", "?tool=a&tool=b"] {
        assert_eq!(told(&list(bad).await), (400, "invalid_query".to_owned()), "{bad}");
    }
    let row = &list("?tool=pay").await.json()["executions"][0];
    assert!(row["arguments"].is_null() && row["result"].is_null() && row["summary"].is_string(), "{row}");
}

#[tokio::test]
async fn many_are_changed_as_the_dry_run_showed_and_no_others() {
    let relay = with_tools().await;
    let (base, data) = (admin(&relay), data(&relay));
    for n in 0..3 {
        ran(&data, &format!("r{n}"), "mail", json!({ "to": n }), "unknown").await;
    }
    ran(&data, "r9", "pay", json!({ "order": 1 }), "unknown").await;
    let body = |more: Value| {
        let mut body = json!({ "filter": { "state": "unknown", "tool": "mail" }, "action": "resolve", "outcome": "not_executed", "reason": "the mailer was down" });
        for (name, value) in more.as_object().expect("members") {
            body[name] = value.clone();
        }
        body
    };
    let bulk =
        async |tag: &str, more: Value| change(&base, "/admin/v1/executions/bulk", Who::Approver, tag, body(more)).await;
    let dry = bulk("", json!({ "dry_run": true })).await;
    assert_eq!(
        (dry.status, &dry.json()["matched"], &dry.json()["changed"]),
        (200, &json!(3), &json!(0)),
        "{}",
        dry.text()
    );
    assert_eq!(dry.json()["filter"], json!({ "state": "unknown", "tool": "mail" }));
    let tag = dry.header("etag").to_owned();
    assert_eq!(told(&bulk("\"bulk-0\"", json!({})).await), (412, "version_mismatch".to_owned()));
    let small = bulk("", json!({ "dry_run": true, "max": 2 })).await;
    assert_eq!((&small.json()["matched"], &small.json()["over_max"]), (&json!(2), &json!(true)));
    assert_eq!(told(&bulk(small.header("etag"), json!({ "max": 2 })).await), (409, "over_max".to_owned()));
    for bad in [
        json!({ "filter": {} }),
        json!({ "action": "confirm" }),
        json!({ "outcome": "unknown" }),
        json!({ "reason": "" }),
        json!({ "max": 0 }),
        json!({ "max": 1001 }),
        json!({ "to": "x" }),
    ] {
        assert_eq!(bulk(&tag, bad.clone()).await.status, 400, "{bad}");
    }
    let done = bulk(&tag, json!({})).await;
    assert_eq!(
        (done.status, &done.json()["changed"], &done.json()["refused"]),
        (200, &json!(3), &json!(0)),
        "{}",
        done.text()
    );
    assert!(done.json()["results"].as_array().is_some_and(|all| all.iter().all(|one| one["state"] == "failed")));
    assert_eq!(told(&bulk(&tag, json!({})).await).0, 412, "what was seen is not there any more");
    let left = get(&base, "/admin/v1/executions?state=unknown", Who::Viewer).await.json();
    assert_eq!(left["executions"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn an_operation_shows_its_executions() {
    let relay = with_tools().await;
    let (base, data) = (admin(&relay), data(&relay));
    let body = json!({ "operation_id": "op-7", "tool": "mail", "arguments": { "to": "z" } });
    let claimed = post(&data, "/v1/executions", &body).await;
    assert_eq!(claimed.status, 201, "{}", claimed.text());
    let shown = get(&base, "/admin/v1/operations/op-7", Who::Viewer).await;
    assert_eq!((shown.status, &shown.json()["state"]), (200, &json!("none")), "{}", shown.text());
    assert_eq!(shown.json()["executions"][0]["key"], claimed.json()["execution"]["key"]);
    assert_eq!(get(&base, "/admin/v1/operations/op-8", Who::Viewer).await.status, 404);
}

#[tokio::test]
async fn switches_and_executions_are_in_one_journal() {
    let relay = with_tools().await;
    let (base, data) = (admin(&relay), data(&relay));
    let key = ran(&data, "r1", "mail", json!({ "to": "a" }), "unknown").await;
    assert_eq!(
        change(&base, "/admin/v1/routes/a/kill", Who::Operator, "*", json!({ "reason": "drill" })).await.status,
        200
    );
    let tag = etag(&base, &key).await;
    change(&base, &path(&key, "resolve"), Who::Operator, &tag, resolve("succeeded")).await;
    let journal = get(&base, "/admin/v1/journal", Who::Viewer).await.json();
    let lines = journal["entries"].as_array().expect("entries");
    let subjects: Vec<&str> = lines.iter().filter_map(|line| line["subject"].as_str()).collect();
    assert_eq!(subjects.iter().filter(|subject| **subject == "route:a").count(), 1, "{subjects:?}");
    assert_eq!(subjects.last(), Some(&&*key));
    let kill = lines.iter().find(|line| line["subject"] == "route:a").expect("the kill");
    assert_eq!(
        (&kill["action"], &kill["by"], &kill["from"], &kill["to"], &kill["version"], &kill["reason"]),
        (&json!("kill"), &json!("oli"), &json!("live"), &json!("killed"), &json!(1), &json!("drill"))
    );
    let verdict = get(&base, "/admin/v1/journal/verify", Who::Viewer).await.json();
    assert_eq!(
        (&verdict["ok"], &verdict["records"], &verdict["control"]["entries"]),
        (&json!(true), &json!(1), &json!(1)),
        "{verdict}"
    );
}
