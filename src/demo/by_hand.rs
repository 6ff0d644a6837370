//! The ledger's lines to try: a payment whose answer is lost, the operator's verdict, the same call again, and a claim.
//!
//! They are for a shell, in order; the names of the variables are the README's and `rubicon ledger`'s. The tests run them as printed.

use std::io::{self, Write};

/// The lines, in order.
pub(super) fn lines(out: &mut impl Write, base: &str, admin: &str, token: &str) -> io::Result<()> {
    let json = "-H 'content-type: application/json'";
    let call = r#"'{"root":"me","arguments":{"invoice":"INV-9","amount":"5.00"}}'"#;
    let claim = r#"'{"root":"me","tool":"pay","arguments":{"invoice":"INV-10","amount":"5.00"}}'"#;
    let verdict = r#"'{"outcome":"succeeded","reason":"seen at the bank","result":{"payment":"by-hand-1"}}'"#;
    writeln!(
        out,
        "\nA payment whose answer never comes, a verdict by an operator (whose token is of this run), and the same call again:\n"
    )?;
    writeln!(out, "  export RUBICON_TOKEN={token}; ADMIN={admin}/admin/v1/executions")?;
    writeln!(out, "  curl -is {base}/v1/tools/transfer {json} \\\n       -d {call}")?;
    writeln!(out, "  curl -s -H \"Authorization: Bearer $RUBICON_TOKEN\" \"$ADMIN?state=unknown&older_than=0s\"")?;
    writeln!(
        out,
        "  KEY=$(curl -s -o /dev/null -w '%header{{rubicon-execution-key}}' {base}/v1/tools/transfer {json} \\\n       -d {call})"
    )?;
    writeln!(
        out,
        "  ETAG=$(curl -s -o /dev/null -w '%header{{etag}}' -H \"Authorization: Bearer $RUBICON_TOKEN\" \"$ADMIN/$KEY\")"
    )?;
    writeln!(
        out,
        "  curl -s -H \"Authorization: Bearer $RUBICON_TOKEN\" -H \"If-Match: $ETAG\" \"$ADMIN/$KEY/resolve\" \\\n       -d {verdict}"
    )?;
    writeln!(out, "  curl -is {base}/v1/tools/transfer {json} \\\n       -d {call}")?;
    writeln!(
        out,
        "\nA claim, as an application makes it that runs the tool itself; it is unknown when its lease of a minute runs out:\n"
    )?;
    writeln!(out, "  curl -is {base}/v1/executions {json} \\\n       -d {claim}")
}
