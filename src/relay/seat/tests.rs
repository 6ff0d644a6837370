//! What calls come to: plans with their occurrences, and sightings.

use rubicon_ledger::{Effect, Flag, Impact, OperationId, Pointer, Projection, RootId, TenantId};

use super::*;
use crate::protocol::words::{Returned, Shown};

fn tool(name: &str, keys: &[&str]) -> (ToolName, Arc<ToolSettings>) {
    let keys: Vec<Pointer> = keys.iter().map(|key| key.parse().unwrap()).collect();
    let name = ToolName::new(name).unwrap();
    let rule = ToolRule {
        name: name.clone(),
        effect: Effect::Write,
        impact: Impact::Normal,
        projection: Arc::new(Projection::new(keys, Vec::new()).unwrap()),
        max_runs: 3,
        guard_similar: true,
        approve_before_run: false,
        has_probe: false,
        owner: None,
    };
    let settings = ToolSettings {
        rule: Arc::new(rule),
        schema: None,
        checker: None,
        endpoint: None,
        timeout: std::time::Duration::from_secs(1),
        result_rules: Vec::new(),
        probe: None,
        summary: None,
        retention: None,
        redact: Vec::new(),
    };
    (name, Arc::new(settings))
}

fn call(choice: u64, id: &str, name: &str, arguments: &str) -> Emitted {
    let id = (!id.is_empty()).then(|| id.to_owned());
    Emitted { choice, id, name: name.to_owned(), words: Words::of_text(arguments) }
}

fn noted(calls: &[Emitted], ambiguous: bool) -> Vec<Noted> {
    let tools = BTreeMap::from([tool("pay", &["/order"]), tool("look", &[])]);
    let names = Names { tenant: TenantId::new("t").unwrap(), operation: OperationId::new("op").unwrap() };
    let root = Root { id: RootId::new("run").unwrap(), ambiguous };
    let mut numbers = Numbers::default();
    calls.iter().map(|call| note(&names, &root, &tools, &mut numbers, call, Some("resp_1"), UnixMillis(7))).collect()
}

fn occurrences(calls: &[Emitted]) -> Vec<Option<u32>> {
    noted(calls, false).iter().map(|noted| noted.plan.as_ref().map(|plan| plan.occurrence.0)).collect()
}

#[test]
fn same_slots_are_numbered_in_whatever_words() {
    let calls = [
        call(0, "a", "pay", "{\"order\":1,\"note\":\"x\"}"),
        call(0, "b", "pay", "{\"order\":2}"),
        call(0, "c", "pay", "{\"order\":1.0,\"note\":\"y\"}"),
        call(0, "d", "look", "{\"order\":1}"),
        call(0, "e", "look", "{\"order\":1}"),
        call(0, "f", "look", "{\"order\":1,\"more\":1}"),
        call(1, "g", "pay", "{\"order\":1}"),
    ];
    let expected = [0, 0, 1, 0, 1, 0, 0].map(Some);
    assert_eq!(occurrences(&calls), expected, "another choice is another answer");
}

#[test]
fn what_could_not_be_claimed_is_not_planned() {
    let calls = [
        call(0, "a", "mail", "{}"),
        call(0, "b", "pay", "{\"note\":\"no order\"}"),
        call(0, "c", "pay", "{\"order\":1,\"order\":2}"),
        call(0, "d", "pay", "[]"),
        call(0, "e", "pay", "{\"order\":1}"),
        call(0, "f", "", "{}"),
    ];
    assert_eq!(occurrences(&calls), [None, None, None, None, Some(0), None]);
    for noted in noted(&calls, false) {
        assert_eq!(noted.sightings.len(), 2, "by call and by response, planned or not");
    }
}

#[test]
fn a_plan_and_its_sightings_name_one_execution() {
    let calls = [call(0, "a", "pay", "{\"order\":1}"), call(0, "b", "pay", "{\"order\":1}")];
    let noted = noted(&calls, true);
    let keys: Vec<_> = noted.iter().map(|noted| noted.sightings[0].key.unwrap()).collect();
    assert_ne!(keys[0], keys[1]);
    for (noted, id) in noted.iter().zip(["a", "b"]) {
        let plan = noted.plan.as_ref().unwrap();
        let slot = plan.tool.projection.apply(&plan.arguments).unwrap().slot;
        let key = first_key(&plan.tenant, &plan.root, &plan.tool.name, slot, plan.occurrence);
        assert_eq!(plan.tool_call_id.as_deref(), Some(id));
        assert_eq!(plan.flags, [Flag::RootAmbiguous]);
        let shown = Shown::Call { name: "pay".to_owned(), words: Words::of_text("{ \"order\": 1.0 }") };
        for (sighting, shown) in noted.sightings.iter().zip([shown, Shown::Response("resp_1".to_owned())]) {
            assert_eq!(sighting.digest, Returned { id: id.to_owned(), shown }.digest("t"));
            assert_eq!((sighting.root.as_str(), sighting.operation.as_str(), sighting.key), ("run", "op", Some(key)));
        }
    }
}

#[test]
fn a_call_without_an_id_is_planned_and_never_found_again() {
    let noted = noted(&[call(0, "", "pay", "{\"order\":1}")], false);
    assert!(noted[0].plan.is_some());
    assert!(noted[0].sightings.is_empty());
}
