//! `primary` as a planned split: what is read, and what is refused at which place.

use super::super::settings::Purpose;
use super::{BASE, codes, parsed};

const SPLIT: &str = "[{ route = \"main\", weight = 90 }, { route = \"third\", weight = 10 }]";

/// [`BASE`] with another primary and a third route.
fn with_primary(primary: &str) -> String {
    format!(
        "{}[route.third]\nprovider = \"p\"\n",
        BASE.replacen("primary = \"main\"", &format!("primary = {primary}"), 1)
    )
}

#[test]
fn all_members_are_there_in_the_order_of_the_file_and_the_first_is_the_primary() {
    let text = with_primary(SPLIT) + "[[approval]]\nworkflow = \"w\"\nroute = \"third\"\npurpose = \"planned\"\n";
    let loaded = parsed(&text).unwrap();
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    let workflow = loaded.settings.workflows.values().next().unwrap();
    let members: Vec<_> = workflow.splits.iter().map(|split| (split.route.name.as_str(), split.weight)).collect();
    assert_eq!(members, [("main", 90), ("third", 10)]);
    assert_eq!(workflow.primary.name.as_str(), "main");
    assert_eq!(loaded.settings.approvals[1].purpose, Purpose::Planned);
    // The same as tables with headers of their own.
    let tables =
        "[[workflow.w.primary]]\nroute = \"main\"\nweight = 1\n[[workflow.w.primary]]\nroute = \"third\"\nweight = 2\n";
    let text = with_primary("\"main\"").replacen("primary = \"main\"\n", "", 1) + tables;
    let loaded = parsed(&text).unwrap();
    assert_eq!(loaded.settings.workflows.values().next().unwrap().splits.len(), 2);
    // One route is no split.
    assert!(parsed(BASE).unwrap().settings.workflows.values().next().unwrap().splits.is_empty());
}

#[test]
fn what_is_no_split_is_refused_at_its_place() {
    let many: Vec<String> = (0..33).map(|_| "{ route = \"main\", weight = 1 }".to_owned()).collect();
    let member = |member: &str| format!("[{{ route = \"main\", weight = 1 }}, {member}]");
    for (primary, expected) in [
        ("[]".to_owned(), vec!["invalid_value 25"]),
        ("[{ route = \"main\", weight = 1 }]".to_owned(), vec!["invalid_value 25"]),
        ("[\"main\", \"third\"]".to_owned(), vec!["invalid_value 25", "wrong_type 25", "wrong_type 25"]),
        ("{ route = \"main\", weight = 1 }".to_owned(), vec!["wrong_type 25"]),
        (member("{ route = \"third\", weight = 0 }"), vec!["out_of_range 25"]),
        (member("{ route = \"third\", weight = -1 }"), vec!["out_of_range 25"]),
        (member("{ route = \"third\", weight = 1.5 }"), vec!["wrong_type 25"]),
        (member("{ route = \"third\" }"), vec!["missing_key 25"]),
        (member("{ weight = 1 }"), vec!["missing_key 25"]),
        (member("{ route = \"thrid\", weight = 1 }"), vec!["unresolved 25"]),
        (member("{ route = \"main\", weight = 1 }"), vec!["duplicate 25"]),
        (member("{ route = \"third\", weight = 1, wieght = 2 }"), vec!["unknown_key 25"]),
        (member("{ route = \"other\", weight = 1 }"), vec!["primary_repeated 26"]),
    ] {
        let found = parsed(&with_primary(&primary)).expect_err(&primary);
        let mut found_codes = codes(&found);
        found_codes.sort();
        assert_eq!(found_codes, expected, "{primary}\n{found:#?}");
    }
    let found = parsed(&with_primary(&format!("[{}]", many.join(", ")))).unwrap_err();
    assert!(codes(&found).contains(&"out_of_range 25".to_owned()), "{found:#?}");
    let found = parsed(&with_primary(&member("{ route = \"thrid\", weight = 1 }"))).unwrap_err();
    assert_eq!(found[0].key, "workflow.w.primary[1].route");
    assert!(found[0].message.contains("did you mean `third`?"), "{}", found[0].message);
}

#[test]
fn approvals_that_a_split_uses() {
    for (route, purpose, used) in [
        ("third", "planned", true),
        ("main", "planned", false),
        ("third", "failover", true),
        ("main", "failover", true),
        ("third", "cross_model", false),
        ("other", "planned", false),
    ] {
        let approval = format!("[[approval]]\nworkflow = \"w\"\nroute = \"{route}\"\npurpose = \"{purpose}\"\n");
        let loaded = parsed(&(with_primary(SPLIT) + &approval)).unwrap();
        assert_eq!(loaded.warnings.is_empty(), used, "{route} {purpose}: {:?}", loaded.warnings);
    }
}
