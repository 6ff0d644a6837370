//! The admin side: who may do what, who is kept out, what is shown, and what a change must say.

use http::Method;
use rubicon::mock::{Answer, chat, chat_whole_text};
use rubicon::protocol::Dialect;
use serde_json::{Value, json};

use crate::harness::{self, Http, client, relay, relay_with, send, url};
use crate::operators::{EVERYBODY, OPERATORS, Who, admin, change, get, request, told, with_operators};
use crate::setup::{Setup, always};

const NOWHERE: &str = "http://127.0.0.1:9";

async fn idle() -> rubicon::serve::Server {
    with_operators(Setup::primary(NOWHERE)).await
}

#[tokio::test]
async fn every_path_asks_for_a_token_and_a_role() {
    let relay = idle().await;
    let base = admin(&relay);
    // What each of nobody, stranger, viewer, operator, approver gets. Changes without If-Match are let in and then refused (428).
    let (reads, operates, approves) = ([401, 401, 200, 200, 200], [401, 401, 403, 428, 428], [401, 401, 403, 403, 428]);
    let rows: Vec<(Method, &str, [u16; 5])> = vec![
        (Method::GET, "/admin/v1/routes", reads),
        (Method::GET, "/admin/v1/routes/a", reads),
        (Method::POST, "/admin/v1/routes/a/kill", operates),
        (Method::POST, "/admin/v1/routes/a/restore", approves),
        (Method::GET, "/admin/v1/failover", reads),
        (Method::POST, "/admin/v1/failover/disable", operates),
        (Method::POST, "/admin/v1/failover/enable", approves),
        (Method::GET, "/admin/v1/operations", reads),
        (Method::GET, "/admin/v1/operations/none", [401, 401, 404, 404, 404]),
        (Method::GET, "/admin/v1/journal", reads),
        (Method::GET, "/admin/v1/journal/head", reads),
        (Method::GET, "/admin/v1/journal/verify", reads),
        (Method::GET, "/admin/v1/config", reads),
        (Method::GET, "/admin/v1/explain?workflow=default", reads),
        (Method::GET, "/metrics", reads),
        (Method::GET, "/healthz", [200; 5]),
        (Method::GET, "/admin/v1/nothing", [404; 5]),
        (Method::DELETE, "/admin/v1/routes", [405; 5]),
    ];
    for (method, path, expected) in rows {
        for (who, status) in EVERYBODY.into_iter().zip(expected) {
            let asked = request(&base, method.clone(), path, who);
            let asked = if method == Method::POST { asked.body("{\"reason\":\"x\"}") } else { asked };
            let answered = send(asked).await;
            assert_eq!(answered.status, status, "{method} {path} as {who:?}: {}", answered.text());
            assert_eq!(answered.header("cache-control"), "no-store", "{path}");
            assert!(!answered.headers.contains_key("access-control-allow-origin"), "{path}");
            if status >= 400 {
                let error = &answered.json()["error"];
                assert!(error["code"].is_string() && error["message"].is_string(), "{error}");
            }
            if status == 401 {
                assert_eq!(answered.header("www-authenticate"), "Bearer");
            }
        }
    }
    // A client's key is no operator's token, and the data plane knows nothing of all this.
    for path in ["/admin/v1/routes", "/metrics"] {
        assert_eq!(send(client(Http::One).get(url(&relay, path))).await.status, 404);
    }
    let journal = get(&base, "/admin/v1/journal", Who::Viewer).await.json();
    assert_eq!(journal["entries"], json!([]), "nothing of this changed anything");
}

#[tokio::test]
async fn tokens_come_as_bearer_only() {
    let relay = idle().await;
    let token = Who::Approver.token().expect("a token");
    let at = format!("{}/admin/v1/routes", admin(&relay));
    let ask = |name: &'static str, value: String| send(client(Http::One).get(&at).header(name, value));
    assert_eq!(ask("authorization", format!("bearer {token}")).await.status, 200);
    for (name, value) in [
        ("authorization", format!("Basic {token}")),
        ("authorization", token.to_owned()),
        ("authorization", "Bearer ".to_owned()),
        ("authorization", format!("Bearer {}", &token[..token.len() - 1])),
        ("x-api-key", token.to_owned()),
        ("cookie", format!("token={token}")),
    ] {
        assert_eq!(ask(name, value).await.status, 401, "{name}");
    }
}

#[tokio::test]
async fn pages_of_other_origins_and_rebound_names_are_kept_out() {
    let relay = idle().await;
    let base = admin(&relay);
    let port = relay.admin_address().expect("one").port();
    for (name, value, status) in [
        ("host", "localhost".to_owned(), 200),
        ("host", format!("localhost:{port}"), 200),
        ("host", "[::1]:1".to_owned(), 200),
        ("host", "evil.test".to_owned(), 403),
        ("host", format!("evil.test:{port}"), 403),
        ("host", "localhost.evil.test".to_owned(), 403),
        ("origin", "http://localhost:3000".to_owned(), 200),
        ("origin", "https://evil.test".to_owned(), 403),
        ("origin", "null".to_owned(), 403),
    ] {
        for path in ["/admin/v1/routes", "/metrics"] {
            let asked = request(&base, Method::GET, path, Who::Approver).header(name, &value);
            assert_eq!(send(asked).await.status, status, "{path} {name}: {value}");
        }
    }
    let kill =
        request(&base, Method::POST, "/admin/v1/routes/a/kill", Who::Approver).header("origin", "https://evil.test");
    assert_eq!(told(&send(kill.header("if-match", "*").body("{\"reason\":\"x\"}")).await).1, "host_not_allowed");
    assert_eq!(get(&base, "/admin/v1/routes/a", Who::Viewer).await.json()["killed"], false);
}

#[tokio::test]
async fn a_change_says_why_and_by_which_version() {
    let relay = idle().await;
    let base = admin(&relay);
    let kill = "/admin/v1/routes/a/kill";
    let why = || json!({ "reason": "drill" });
    for (body, code) in [
        (json!({}), "reason_missing"),
        (json!({ "reason": " " }), "reason_missing"),
        (json!({ "reason": null }), "reason_missing"),
        (json!({ "reason": "x".repeat(501) }), "invalid_reason"),
        (json!({ "reason": "a\nb" }), "invalid_reason"),
        (json!({ "reason": 7 }), "invalid_body"),
        (json!({ "reason": "x", "worklow": "w" }), "invalid_body"),
        (json!({ "reason": "x", "workflow": "default" }), "invalid_body"),
        (json!(["x"]), "invalid_body"),
        (json!(["x", null]), "invalid_body"),
        (json!({ "reason": "\u{200b}\u{200d}" }), "invalid_reason"),
        (json!({ "reason": "a\u{202e}b" }), "invalid_reason"),
    ] {
        let answered = change(&base, kill, Who::Operator, "*", body.clone()).await;
        assert_eq!(told(&answered), (400, code.to_owned()), "{body}");
    }
    let twice = request(&base, Method::POST, kill, Who::Operator).header("if-match", "*");
    let twice = send(twice.body(r#"{"reason":"x","reason":"y"}"#)).await;
    assert_eq!(told(&twice), (400, "invalid_body".to_owned()));
    assert!(!twice.text().contains("struct"), "{}", twice.text());
    let large = change(&base, kill, Who::Operator, "*", json!({ "reason": "x".repeat(20_000) })).await;
    assert_eq!(told(&large), (413, "request_too_large".to_owned()));
    // A misspelt workflow must not switch off all of them.
    let answered =
        change(&base, "/admin/v1/failover/disable", Who::Operator, "*", json!({ "reason": "x", "workflows": "w" }));
    assert_eq!(told(&answered.await), (400, "invalid_body".to_owned()));
    let unknown =
        change(&base, "/admin/v1/failover/disable", Who::Operator, "*", json!({ "reason": "x", "workflow": "no" }));
    assert_eq!(told(&unknown.await), (404, "workflow_not_found".to_owned()));
    let nobody = change(&base, "/admin/v1/routes/nobody/kill", Who::Operator, "*", why()).await;
    assert_eq!(told(&nobody), (404, "route_not_found".to_owned()));

    let missing = send(request(&base, Method::POST, kill, Who::Operator).body(why().to_string())).await;
    assert_eq!(told(&missing), (428, "precondition_required".to_owned()));
    let star = change(&base, "/admin/v1/routes/a/restore", Who::Approver, "*", why()).await;
    assert_eq!(told(&star), (428, "precondition_required".to_owned()));
    let stale = change(&base, kill, Who::Operator, "\"4\"", why()).await;
    assert_eq!((told(&stale), stale.header("etag")), ((412, "version_mismatch".to_owned()), "\"0\""));

    let before = get(&base, "/admin/v1/routes/a", Who::Viewer).await;
    assert_eq!(before.header("etag"), "\"0\"");
    assert_eq!((&before.json()["by"], &before.json()["version"]), (&Value::Null, &json!(0)));
    let killed = change(&base, kill, Who::Operator, before.header("etag"), why()).await;
    let view = killed.json();
    assert_eq!((killed.status, killed.header("etag"), &view["changed"]), (200, "\"1\"", &json!(true)));
    assert_eq!(
        (&view["route"], &view["provider"], &view["killed"], &view["reason"], &view["by"], &view["version"]),
        (&json!("a"), &json!("a"), &json!(true), &json!("drill"), &json!("oli"), &json!(1))
    );
    assert!(view["since"].is_u64() && view["saved"] == true, "{view}");
    let again = change(&base, kill, Who::Approver, "*", json!({ "reason": "another" })).await.json();
    assert_eq!((&again["changed"], &again["by"], &again["version"]), (&json!(false), &json!("oli"), &json!(1)));
    let stale = change(&base, "/admin/v1/routes/a/restore", Who::Approver, "0", why()).await;
    assert_eq!((told(&stale).0, &stale.json()["version"]), (412, &json!(1)));
    // Unquoted is understood, too.
    let restored = change(&base, "/admin/v1/routes/a/restore", Who::Approver, "1", json!({ "reason": "well" })).await;
    assert_eq!((restored.status, &restored.json()["killed"], restored.header("etag")), (200, &json!(false), "\"2\""));

    let journal = get(&base, "/admin/v1/journal", Who::Viewer).await.json();
    let told: Vec<_> = journal["entries"].as_array().expect("entries").iter().collect();
    assert_eq!(told.len(), 2, "a repeated kill is no entry");
    assert_eq!(
        (&told[0]["action"], &told[0]["subject"], &told[0]["by"], &told[0]["reason"], &told[0]["from"], &told[0]["to"]),
        (&json!("kill"), &json!("route:a"), &json!("oli"), &json!("drill"), &json!("live"), &json!("killed"))
    );
    assert_eq!((&told[1]["by"], &told[1]["previous"]), (&json!("ana"), &told[0]["hash"]));
}

#[tokio::test]
async fn failover_is_one_document_with_one_version() {
    let relay = idle().await;
    let base = admin(&relay);
    let shown = get(&base, "/admin/v1/failover", Who::Viewer).await;
    assert_eq!((shown.header("etag"), &shown.json()["disabled"]), ("\"0\"", &json!(false)));
    assert_eq!(shown.json()["workflows"][0]["workflow"], "default");
    let disable = |body| change(&base, "/admin/v1/failover/disable", Who::Operator, "*", body);
    let enable =
        async |etag: String, body| change(&base, "/admin/v1/failover/enable", Who::Approver, &etag, body).await;
    assert_eq!(disable(json!({ "reason": "x", "workflow": "default" })).await.header("etag"), "\"1\"");
    let both = disable(json!({ "reason": "y" })).await;
    let view = both.json();
    assert_eq!((both.header("etag"), &view["disabled"], &view["by"]), ("\"2\"", &json!(true), &json!("oli")));
    assert_eq!((&view["workflows"][0]["disabled"], &view["workflows"][0]["reason"]), (&json!(true), &json!("x")));
    assert_eq!(enable("\"0\"".to_owned(), json!({ "reason": "x" })).await.status, 412);
    let tag = get(&base, "/admin/v1/failover", Who::Viewer).await.header("etag").to_owned();
    let one = enable(tag.clone(), json!({ "reason": "x", "workflow": "default" })).await;
    assert_eq!((one.status, &one.json()["workflows"][0]["disabled"]), (200, &json!(false)));
    assert_eq!(enable(tag, json!({ "reason": "x", "workflow": "default" })).await.status, 412);
    // The other switch has not changed since it was seen.
    assert_eq!(enable("2".to_owned(), json!({ "reason": "x" })).await.json()["disabled"], false);
}

#[tokio::test]
async fn operations_of_all_tenants_are_listed_a_page_at_a_time_without_content() {
    let a = always(chat_whole_text("the answer's words")).await;
    let tables = format!(
        "{OPERATORS}[[client]]\nname = \"red\"\nkeys = [\"env:RED\"]\nworkflows = [\"default\"]\n\
         [[client]]\nname = \"blue\"\nkeys = [\"env:BLUE\"]\nworkflows = [\"default\"]\n"
    );
    let env = crate::operators::ENV.into_iter().chain([("RED", "red-key"), ("BLUE", "blue-key")]).collect();
    let setup =
        Setup::primary(a.base_url()).server("admin_listen = \"127.0.0.1:0\"\nstore = \"memory\"").tables(&tables);
    let relay = relay_with(&setup.text(), &env).await;
    let base = admin(&relay);
    let call = |id: &'static str, key: &'static str| {
        let body = harness::request(Dialect::ChatCompletions, false);
        let request = client(Http::One).post(url(&relay, "/v1/chat/completions")).bearer_auth(key);
        send(request.header("content-type", "application/json").header("idempotency-key", id).body(body))
    };
    for (id, key) in [("one", "red-key"), ("two", "blue-key"), ("shared", "red-key"), ("shared", "blue-key")] {
        assert_eq!(call(id, key).await.status, 200);
    }
    let list = async |query: &str| get(&base, &format!("/admin/v1/operations{query}"), Who::Viewer).await;
    let ids = |page: &Value| -> Vec<String> {
        let all = page["operations"].as_array().expect("a list").iter();
        all.map(|one| format!("{}/{}", one["tenant"].as_str().unwrap(), one["operation_id"].as_str().unwrap()))
            .collect()
    };
    let all = list("").await;
    assert_eq!(ids(&all.json()), ["red/one", "blue/two", "red/shared", "blue/shared"]);
    assert_eq!(all.json()["next_cursor"], Value::Null);
    assert_eq!(all.json()["operations"][0]["attempts"][0]["route"], "a");
    for content in ["the answer's words", "\"hi\"", "red-key"] {
        assert!(!all.text().contains(content), "{content}");
    }
    let mine = client(Http::One).get(url(&relay, "/v1/operations/one")).bearer_auth("red-key");
    assert!(
        send(mine).await.json()["attempts"][0].get("route").is_none(),
        "a client that may not see routes sees none"
    );
    let first = list("?limit=3").await.json();
    assert_eq!(ids(&first), ["red/one", "blue/two", "red/shared"]);
    let next = first["next_cursor"].as_str().expect("there is more");
    let rest = get(&base, &format!("/admin/v1/operations?limit=3&cursor={next}"), Who::Viewer).await.json();
    assert_eq!((ids(&rest), &rest["next_cursor"]), (vec!["blue/shared".to_owned()], &Value::Null));
    assert_eq!(ids(&list("?tenant=blue&state=completed").await.json()), ["blue/two", "blue/shared"]);
    assert!(ids(&list("?state=running").await.json()).is_empty());
    assert!(ids(&list("?workflow=other").await.json()).is_empty());
    for bad in ["?state=done", "?limit=0", "?limit=x", "?cursor=x", "?stat=running"] {
        assert_eq!(told(&list(bad).await), (400, "invalid_query".to_owned()), "{bad}");
    }
    let one = get(&base, "/admin/v1/operations/one", Who::Viewer).await.json();
    assert_eq!((&one["tenant"], &one["state"]), (&json!("red"), &json!("completed")));
    assert_eq!(
        told(&get(&base, "/admin/v1/operations/shared", Who::Viewer).await),
        (409, "operation_ambiguous".to_owned())
    );
    let blue = get(&base, "/admin/v1/operations/shared?tenant=blue", Who::Viewer).await.json();
    assert_eq!(blue["tenant"], "blue");
}

#[tokio::test]
async fn the_journal_is_read_a_page_at_a_time_and_verified() {
    let relay = idle().await;
    let base = admin(&relay);
    for round in 0..3 {
        let version = (round * 2).to_string();
        change(&base, "/admin/v1/routes/a/kill", Who::Operator, &version, json!({ "reason": "x" })).await;
        let version = (round * 2 + 1).to_string();
        change(&base, "/admin/v1/routes/a/restore", Who::Approver, &version, json!({ "reason": "y" })).await;
    }
    let read = async |query: &str| get(&base, &format!("/admin/v1/journal{query}"), Who::Viewer).await.json();
    let numbers = |page: &Value| -> Vec<u64> {
        page["entries"].as_array().expect("a list").iter().map(|entry| entry["sequence"].as_u64().unwrap()).collect()
    };
    let first = read("?limit=4").await;
    assert_eq!((numbers(&first), &first["next_cursor"]), (vec![1, 2, 3, 4], &json!("5")));
    let rest = read("?from=5&limit=4").await;
    assert_eq!((numbers(&rest), &rest["next_cursor"]), (vec![5, 6], &Value::Null));
    assert_eq!(numbers(&read("?cursor=6").await), [6]);
    assert!(numbers(&read("?from=7").await).is_empty());
    let head = read("/head").await;
    assert_eq!((&head["sequence"], &head["hash"]), (&json!(6), &rest["entries"][1]["hash"]));
    let verdict = read("/verify").await;
    assert_eq!((&verdict["ok"], &verdict["entries"], &verdict["head"]), (&json!(true), &json!(6), &head));
    let known = format!("/admin/v1/journal/verify?head={}", head["hash"].as_str().expect("a hash"));
    assert_eq!(get(&base, &known, Who::Viewer).await.json()["ok"], true);
    let cut = read("/verify?head=00000000000000000000000000000000000000000000000000000000000000ff").await;
    assert_eq!((&cut["ok"], &cut["broken"]["why"]), (&json!(false), &json!("cut_off")));
    assert_eq!(get(&base, "/admin/v1/journal/verify?head=short", Who::Viewer).await.status, 400);
    assert_eq!(
        get(&base, "/admin/v1/journal/verify?head=", Who::Viewer).await.status,
        400,
        "a variable that was not set"
    );
}

#[tokio::test]
async fn without_operators_it_is_off_save_open_metrics() {
    let plain = relay(&Setup::primary(NOWHERE).text()).await;
    assert_eq!(plain.admin_address(), None);
    let open = Setup::primary(NOWHERE).server("admin_listen = \"127.0.0.1:0\"\nmetrics_open = true").text();
    let open = relay(&open).await;
    let base = admin(&open);
    let metrics = get(&base, "/metrics", Who::Nobody).await;
    assert_eq!(metrics.status, 200);
    assert!(metrics.header("content-type").starts_with("application/openmetrics-text"), "{metrics:?}");
    assert!(metrics.text().contains("rubicon_control_store_writable 1\n"), "{}", metrics.text());
    for who in [Who::Nobody, Who::Approver] {
        assert_eq!(told(&get(&base, "/admin/v1/routes", who).await), (404, "admin_off".to_owned()));
    }
}

#[tokio::test]
async fn it_speaks_http_2_and_keeps_connections() {
    let relay = idle().await;
    let base = admin(&relay);
    for http in [Http::One, Http::Two] {
        let client = client(http);
        for _ in 0..2 {
            let kill = client.post(format!("{base}/admin/v1/routes/a/kill")).header("if-match", "*");
            let token = Who::Operator.token().expect("a token");
            let answered = send(kill.bearer_auth(token).body("{\"reason\":\"x\"}")).await;
            assert_eq!((answered.status, answered.header("connection")), (200, ""), "{http:?}");
        }
    }
}

#[tokio::test]
async fn it_answers_until_the_last_stream_of_a_shutdown_has_ended() {
    let a = always(Answer::sse().step(chat::delta("x")).gate("go").step(chat::finish("stop")).step(chat::done())).await;
    let relay = with_operators(Setup::primary(a.base_url())).await;
    let base = admin(&relay);
    let at = url(&relay, "/v1/chat/completions");
    let body = harness::request(Dialect::ChatCompletions, true);
    let stream = tokio::spawn(send(client(Http::One).post(at).header("content-type", "application/json").body(body)));
    a.wait_for(|stats| stats.at_gates == 1).await;
    let shutdown = tokio::spawn(relay.shutdown());
    let listed = get(&base, "/admin/v1/operations?state=running", Who::Viewer).await.json();
    assert_eq!(listed["operations"].as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(
        change(&base, "/admin/v1/routes/a/kill", Who::Operator, "*", json!({ "reason": "x" })).await.status,
        200
    );
    a.open_gate("go", 1);
    assert!(stream.await.expect("no panic").clean);
    shutdown.await.expect("an end");
}

#[tokio::test]
async fn what_the_living_process_would_do_is_explained() {
    let b = always(chat_whole_text("x")).await;
    let relay = with_operators(Setup::primary(NOWHERE).equivalent("b", &b)).await;
    let base = admin(&relay);
    let explain = async |query: &str| get(&base, &format!("/admin/v1/explain{query}"), Who::Viewer).await;
    let open = explain("?workflow=default").await.json();
    let routes = |json: &Value, list: &str| -> Vec<String> {
        json[list].as_array().expect("a list").iter().map(|one| one["route"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!((routes(&open, "candidates"), routes(&open, "refused")), (vec!["a".to_owned(), "b".to_owned()], vec![]));
    change(&base, "/admin/v1/routes/a/kill", Who::Operator, "*", json!({ "reason": "x" })).await;
    let killed = explain("").await.json();
    assert_eq!(routes(&killed, "candidates"), ["b"]);
    assert_eq!((&killed["refused"][0]["route"], &killed["refused"][0]["why"]), (&json!("a"), &json!("killed")));
    // A request of one's own: what it uses counts, what it says is not shown.
    let body = r#"{"model":"m","messages":[{"role":"user","content":"my secret"}],"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{}}}}"#;
    for method in [Method::GET, Method::POST] {
        let asked =
            request(&base, method, "/admin/v1/explain?header=rubicon-workflow:%20default", Who::Viewer).body(body);
        let answered = send(asked).await;
        assert_eq!(answered.json()["refused"][1]["why"], "capability:json_schema", "{}", answered.text());
        assert!(!answered.text().contains("my secret"));
    }
    assert_eq!(explain("?workflow=none").await.status, 400);
    assert_eq!(told(&explain("?wrkflow=default").await), (400, "invalid_query".to_owned()));
    assert_eq!(b.calls(), 0, "nobody is called");
}

/// The journal keeps a reason for ever: a secret that somebody types into it is taken out before.
#[tokio::test]
async fn no_secret_goes_into_the_journal() {
    let relay = idle().await;
    let base = admin(&relay);
    let token = Who::Approver.token().expect("a token");
    let reason = format!("used {token} by mistake, and {}{}", "sk-", "abcdefghijklmnop");
    let killed = change(&base, "/admin/v1/routes/a/kill", Who::Operator, "*", json!({ "reason": reason })).await;
    assert_eq!(killed.json()["reason"], "used [masked] by mistake, and [masked]");
    let journal = get(&base, "/admin/v1/journal", Who::Viewer).await;
    assert_eq!(journal.json()["entries"][0]["reason"], "used [masked] by mistake, and [masked]");
    assert!(!journal.text().contains(token));
}
