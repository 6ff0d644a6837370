//! The judgement without a table of its own: statuses, waits, what may have run, keys, hostile input. Test only.

use super::*;

pub(super) const CONTEXT: Context = Context {
    dialect: Dialect::ChatCompletions,
    ambiguous_429_is_rate_limit: false,
    now: UnixMillis(1_772_538_900_000),
};

fn http(status: u16, headers: &[(&'static str, &str)], body: &str) -> Verdict {
    let headers = headers
        .iter()
        .map(|(k, v)| (http::HeaderName::from_static(k), http::HeaderValue::from_str(v).unwrap()))
        .collect();
    classify(&Evidence::Http { status, headers: &headers, body: body.as_bytes() }, &CONTEXT)
}

#[test]
fn what_needs_no_words() {
    use Class::*;
    let rows = [
        (Evidence::Transport(TransportFault::Dns), TransportTransient, false, None),
        (Evidence::Transport(TransportFault::Refused), TransportTransient, false, None),
        (Evidence::Transport(TransportFault::ConnectTimeout), TransportTransient, false, None),
        (Evidence::Transport(TransportFault::Tls), TransportTransient, false, None),
        (Evidence::Transport(TransportFault::Certificate), Unclassified, false, None),
        (Evidence::Transport(TransportFault::Reset { sent: false }), TransportTransient, false, None),
        (Evidence::Transport(TransportFault::Reset { sent: true }), TransportTransient, true, None),
        (Evidence::Transport(TransportFault::BadHead), ContractFailure, true, None),
        (Evidence::Truncated { events: 0 }, TransportTransient, true, Some(200)),
        (Evidence::Truncated { events: 3 }, TransportTransient, true, Some(200)),
        (Evidence::BodyCut, TransportTransient, true, Some(200)),
        (Evidence::Silence(Timer::FirstOutput), TransportTransient, true, None),
        (Evidence::Silence(Timer::Idle), TransportTransient, true, None),
        (Evidence::Silence(Timer::Answer), TransportTransient, true, None),
        (Evidence::Silence(Timer::Deadline), TransportTransient, true, None),
        (Evidence::Silence(Timer::Stream), TransportTransient, true, None),
        (Evidence::BadFraming, ContractFailure, true, Some(200)),
        (Evidence::BadAnswer, ContractFailure, true, Some(200)),
    ];
    for (evidence, class, may_have_run, status) in rows {
        let verdict = classify(&evidence, &CONTEXT);
        let alarm = matches!(evidence, Evidence::Transport(TransportFault::Certificate));
        assert_eq!(verdict, Verdict { alarm, ..plain(class, may_have_run, status) }, "{evidence:?}");
    }
}

#[test]
fn every_status_without_a_word() {
    use Class::*;
    for status in 0..=1_000_u16 {
        let class = match status {
            408 | 425 => TransportTransient,
            200..300 => ContractFailure,
            402 => QuotaExhausted,
            401 | 403 => AuthenticationOrPermission,
            400 | 404 | 413 | 422 => InvalidRequest,
            429 => Ambiguous429,
            500 | 502 | 504 | 520 | 521 | 522 | 523 | 524 | 525 | 526 => ProviderServerError,
            503 | 529 => ProviderOverloaded,
            _ => Unclassified,
        };
        let may_have_run = !(400..500).contains(&status) || status == 408;
        assert_eq!(http(status, &[], ""), plain(class, may_have_run, Some(status)), "{status}");
    }
}

#[test]
fn statuses_that_no_word_changes() {
    let body = r#"{"error":{"message":"Overloaded, rate limit, quota exceeded","type":"insufficient_quota"}}"#;
    for (status, class) in [
        (302, Class::Unclassified),
        (307, Class::Unclassified),
        (409, Class::Unclassified),
        (408, Class::TransportTransient),
        (425, Class::TransportTransient),
        (600, Class::Unclassified),
        (650, Class::Unclassified),
        (999, Class::Unclassified),
    ] {
        let verdict = http(status, &[], body);
        assert_eq!((verdict.class, verdict.said.kind.as_deref()), (class, Some("insufficient_quota")), "{status}");
    }
    let server_error = r#"{"error":{"message":"x","type":"server_error"}}"#;
    for (status, class) in [
        (599, Class::ProviderServerError),
        (600, Class::Unclassified),
        (501, Class::ProviderServerError),
        (501 + 100, Class::Unclassified),
    ] {
        assert_eq!(http(status, &[], server_error).class, class, "{status}");
    }
    // The same from inside a stream.
    let fault = Fault { status: Some(408), ..Fault::default() };
    let verdict = classify(&Evidence::Fault { fault: &fault, headers: &HeaderMap::new() }, &CONTEXT);
    assert_eq!((verdict.class, verdict.may_have_run), (Class::TransportTransient, true));
}

#[test]
fn a_429_and_its_wait() {
    use Class::*;
    let s = |n| Some(Duration::from_secs(n));
    let none: &[(&'static str, &str)] = &[];
    let used_up: &[(&'static str, &str)] =
        &[("x-ratelimit-reset-requests", "9s"), ("x-ratelimit-remaining-requests", "0")];
    let left: &[(&'static str, &str)] =
        &[("x-ratelimit-reset-requests", "9s"), ("x-ratelimit-remaining-requests", "1")];
    let rows = [
        (none, "", Ambiguous429, None),
        (none, "<html><title>429 Too Many Requests</title></html>", Ambiguous429, None),
        (&[("retry-after", "3")], "", RateLimited, s(3)),
        (&[("retry-after-ms", "3000")], "", RateLimited, s(3)),
        (&[("retry-after", "-3")], "", Ambiguous429, None),
        (&[("retry-after", "Tue, 03 Mar 2026 11:00:00 GMT")], "", RateLimited, s(0)),
        (&[("retry-after", "Tue, 03 Mar 2099 11:00:00 GMT")], "", RateLimited, Some(retry_after::WAIT_MAX)),
        (&[("retry-after", "4294967296")], "", RateLimited, Some(retry_after::WAIT_MAX)),
        (&[("retry-after", "later")], "", Ambiguous429, None),
        (&[("retry-after", "3")], "You have no quota left", QuotaExhausted, None),
        (&[("retry-after", "3")], r#"{"error":{"message":"See billing"}}"#, QuotaExhausted, None),
        (used_up, "", RateLimited, s(9)),
        (left, "", Ambiguous429, None),
        (&[("retry-after", "3")], "The engine is overloaded", ProviderOverloaded, s(3)),
        (none, r#"{"error":{"details":[{"retryDelay":"9s"}]}}"#, RateLimited, s(9)),
        (
            &[("retry-after", "3")],
            r#"{"error":{"type":"rate_limit_error","code":"insufficient_quota"}}"#,
            QuotaExhausted,
            None,
        ),
    ];
    for (headers, body, class, retry_after) in rows {
        let verdict = http(429, headers, body);
        assert_eq!(
            (verdict.class, verdict.retry_after, verdict.may_have_run),
            (class, retry_after, false),
            "{headers:?} {body}"
        );
    }
    let lenient = Context { ambiguous_429_is_rate_limit: true, ..CONTEXT };
    let headers = HeaderMap::new();
    for (body, class) in [("", RateLimited), ("billing", QuotaExhausted)] {
        let evidence = Evidence::Http { status: 429, headers: &headers, body: body.as_bytes() };
        assert_eq!(classify(&evidence, &lenient).class, class, "{body}");
    }
}

#[test]
fn reset_headers_matter_for_a_429_only() {
    let headers: &[(&'static str, &str)] =
        &[("x-ratelimit-reset-requests", "9s"), ("x-ratelimit-remaining-requests", "0")];
    for status in [500, 503, 529, 404] {
        assert_eq!(http(status, headers, "").retry_after, None, "{status}");
    }
    for (status, wait) in [(500, Some(2)), (503, Some(2)), (408, Some(2)), (400, None), (403, None), (302, None)] {
        assert_eq!(http(status, &[("retry-after", "2")], "").retry_after, wait.map(Duration::from_secs), "{status}");
    }
}

#[test]
fn what_may_have_run() {
    let overloaded = r#"{"error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let loading = r#"{"error":"Model x is currently loading"}"#;
    let rows = [
        (503, overloaded, false),
        (529, overloaded, false),
        (429, overloaded, false),
        (500, overloaded, true),
        (502, overloaded, true),
        (503, "", true),
        (529, "", true),
        (503, "upstream connect error or disconnect/reset before headers", true),
        (503, loading, false),
        (500, "", true),
        (408, "", true),
        (400, "", false),
        (499, "", false),
        (400, r#"{"error":{"code":"tool_use_failed"}}"#, true),
    ];
    for (status, body, want) in rows {
        assert_eq!(http(status, &[], body).may_have_run, want, "{status} {body}");
    }
}

#[test]
fn no_planted_key_comes_out() {
    let planted = format!("sk-{}", "proj-a1B2c3D4".repeat(3));
    let bodies = [
        format!(
            r#"{{"error":{{"message":"Incorrect API key provided: {planted}.","type":"{planted}","code":"{planted}","param":"{planted}"}}}}"#
        ),
        format!(r#"{{"error":{{"message":"m","param":{{"k":"{planted}"}},"code":["{planted}"]}}}}"#),
        format!(r#"{{"error":"{planted}"}}"#),
        format!(r#"{{"detail":[{{"msg":"{planted}","input":"{planted}"}}]}}"#),
        format!(r#"{{"error":{{"message":"m","metadata":{{"raw":"{planted}"}}}}}}"#),
        format!("Unauthorized: {planted}"),
        format!("<html><title>{planted}</title>{planted}</html>"),
        format!("data: {{\"error\":{{\"message\":\"{planted}\"}}}}\n\n"),
        format!("\"{planted}\""),
        format!("{{\"error\":{{\"message\":\"cut {planted}"),
        format!("{}{planted}", "x".repeat(190) + " "),
    ];
    for body in bodies {
        for status in [200, 302, 400, 401, 409, 429, 500, 503] {
            let printed = format!("{:?}", http(status, &[("x-amzn-errortype", &planted)], &body));
            assert!(!printed.contains("a1B2c3D4"), "{status} {body}: {printed}");
        }
    }
    let fault = Fault {
        kind: Some(planted.clone()),
        code: Some(planted.clone()),
        message: Some(format!("Bearer {planted}")),
        status: None,
    };
    let printed = format!("{:?}", classify(&Evidence::Fault { fault: &fault, headers: &HeaderMap::new() }, &CONTEXT));
    assert!(!printed.contains("a1B2c3D4"), "{printed}");
}

/// Bodies built to make a scanner go back and forth. 1 MiB each, of which 64 KiB are read; a quadratic pass over
/// 64 KiB takes minutes in a debug build, a linear one milliseconds, so the limit can be wide.
#[test]
fn hostile_bodies_take_linear_time() {
    let began = crate::clock::Instant::now();
    http(429, &[], &format!("<script>{}", "<".repeat(1 << 20)));
    for unit in [
        "<",
        "<script>",
        "<a ",
        "[",
        "{\"error\":",
        "http",
        "http://",
        "sk-",
        "=",
        "key: ",
        "/",
        "data:",
        "\n",
        "\u{0}",
        "ü",
    ] {
        let body = unit.repeat((1 << 20) / unit.len());
        for text in [body.clone(), serde_json::json!({ "error": { "message": body } }).to_string()] {
            let fault = Fault { message: Some(body.clone()), ..Fault::default() };
            http(429, &[], &text);
            let _ = classify(&Evidence::Fault { fault: &fault, headers: &HeaderMap::new() }, &CONTEXT);
        }
    }
    assert!(began.elapsed() < Duration::from_secs(20), "took {:?}", began.elapsed());
}

proptest::proptest! {
    #[test]
    fn never_panics(status: u16, body in proptest::collection::vec(proptest::num::u8::ANY, 0..200), text in ".{0,100}") {
        let headers: HeaderMap =
            [(http::header::RETRY_AFTER, http::HeaderValue::from_bytes(&body).unwrap_or(http::HeaderValue::from_static("1")))]
                .into_iter()
                .collect();
        let json = serde_json::json!({ "error": { "message": text, "code": text, "details": [text] } }).to_string();
        for body in [body.as_slice(), text.as_bytes(), json.as_bytes()] {
            let verdict = classify(&Evidence::Http { status, headers: &headers, body }, &CONTEXT);
            proptest::prop_assert_eq!(verdict.provider_status.is_some(), true);
        }
        let fault = Fault { kind: Some(text.clone()), code: Some(text.clone()), message: Some(text), status: Some(status) };
        let _ = classify(&Evidence::Fault { fault: &fault, headers: &headers }, &CONTEXT);
    }
}
