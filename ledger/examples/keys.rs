//! What the ledger sees when a model calls the same tool four times: `cargo run -p rubicon-ledger --example keys`.
//!
//! The tool is a payment whose slot is made of the invoice and the amount; `trace` is ignored. Printed are, for each
//! call, its key and whether it is the first one again, the first one in other words, or something new.

use std::error::Error;

use rubicon_ledger::{Arguments, KeyParts, Occurrence, OperationId, Projection, RootId, TenantId, ToolName, differs};

fn main() -> Result<(), Box<dyn Error>> {
    let rule = Projection::new(vec!["/invoice".parse()?, "/amount".parse()?], vec!["/trace".parse()?])?;
    let tenant = TenantId::new("support")?;
    let root = RootId::from(OperationId::new("op_7")?);
    let tool = ToolName::new("pay_invoice")?;

    let calls = [
        r#"{"invoice": 9007199254740993, "amount": 10.50, "reason": "monthly fee", "trace": "a1"}"#,
        r#"{"trace":"b2","reason":"monthly fee","amount":1.05e1,"invoice":9007199254740993}"#,
        r#"{"invoice":9007199254740993,"amount":10.5,"reason":"fee for November"}"#,
        r#"{"invoice":9007199254740992,"amount":10.5,"reason":"monthly fee"}"#,
    ];
    let first = rule.apply(&Arguments::parse(calls[0].as_bytes())?)?;
    for call in calls {
        let seen = rule.apply(&Arguments::parse(call.as_bytes())?)?;
        let key = KeyParts {
            tenant: &tenant,
            root: &root,
            tool: &tool,
            slot: seen.slot,
            occurrence: Occurrence::default(),
            run: None,
        }
        .key();
        let verdict = match (seen.slot == first.slot, seen.fingerprint == first.fingerprint) {
            (true, true) => "the same execution".to_owned(),
            (true, false) => {
                format!("the same intent in other words: {:?}", differs(&first.canonical, &seen.canonical).pointers)
            }
            (false, _) => "another intent".to_owned(),
        };
        println!("{call}\n  {}\n  {key}\n  {verdict}\n", seen.canonical.as_str());
    }

    let refused = Arguments::parse(br#"{"invoice": 1, "to": {"iban": "x", "iban": "y"}}"#);
    if let Err(refused) = refused {
        println!("refused: {} at {}", refused.kind.code(), refused.pointer);
    }
    Ok(())
}
