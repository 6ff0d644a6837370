//! The walk over a request's content blocks and tools.
//!
//! In: the raw values of `system`, `messages`, `tools`. Out, gathered in [`Found`]: how much text there is, which capabilities it
//! takes, which tools the provider would run, which state only one account holds. Why by member and not by block type: a pin is a
//! pin wherever a new block type carries it. What stands where content stands and is not known is a capability under its own
//! name, so that no route drops it in silence. What the application says to its own tools (`input`, plain `tool_result` text)
//! is counted and not looked into. Deliberately not here: the request's other members (`request.rs`).

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::fields::{Raw, each, object, size, text_bytes, word};
use crate::protocol::features::{self, named};
use crate::protocol::json_walk::member;
use crate::protocol::pin::{Kind, Pins};
use crate::protocol::request::{HostedTool, RequestError};

/// Blocks inside blocks. The deepest declared nesting is three (a tool's result, a document, its source's blocks); deeper ones
/// are refused, so that nothing hides below what was read.
const DEPTH_MAX: u8 = 6;

/// Kinds of hosted tools in one request. Fifteen are declared; more than this is refused, so that the list stays small.
const HOSTED_TOOLS_MAX: usize = 32;

/// Tools with a type of Anthropic's own that the *application* runs: their calls come as plain `tool_use`.
const CLIENT_TOOLS: &[&str] = &["bash", "browser_toolset", "computer", "computer_toolset", "memory", "text_editor"];

/// Tools that the provider runs and that only look something up. All others that it runs may act.
const LOOK_UPS: &[&str] = &["advisor", "tool_search_tool_bm25", "tool_search_tool_regex", "web_fetch", "web_search"];

/// What a walk has found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Bytes of text, as written.
    pub(super) text_bytes: u64,
    /// Capabilities by SPEC name.
    pub(super) capabilities: BTreeSet<String>,
    /// State that only one account holds.
    pub(super) pins: Pins,
    /// Tools that the provider runs.
    pub(super) hosted: Vec<HostedTool>,
}

/// Where a block stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// As content of a message, of the system prompt, of a tool's result, of a document.
    Content,
    /// As a detail of another block (a source, citations, a hosted tool's findings): what it is, is said by that block.
    Detail,
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    name: Raw<'a>,
    #[serde(borrow)]
    text: Raw<'a>,
    #[serde(borrow)]
    thinking: Raw<'a>,
    #[serde(borrow)]
    title: Raw<'a>,
    #[serde(borrow)]
    context: Raw<'a>,
    #[serde(borrow)]
    input: Raw<'a>,
    #[serde(borrow)]
    content: Raw<'a>,
    #[serde(borrow)]
    source: Raw<'a>,
    #[serde(borrow)]
    citations: Raw<'a>,
    #[serde(borrow)]
    data: Raw<'a>,
    #[serde(borrow)]
    signature: Raw<'a>,
    #[serde(borrow)]
    encrypted_content: Raw<'a>,
    #[serde(borrow)]
    encrypted_index: Raw<'a>,
    #[serde(borrow)]
    encrypted_stdout: Raw<'a>,
    #[serde(borrow)]
    file_id: Raw<'a>,
    // Changes of the tool set in the middle of a conversation.
    #[serde(borrow)]
    tool: Raw<'a>,
    #[serde(borrow)]
    tool_changes: Raw<'a>,
}

#[derive(Deserialize)]
struct Tool<'a> {
    #[serde(borrow, rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow)]
    definition: Raw<'a>,
}

impl Found {
    /// A string, or an array of blocks: `system`, and `content` of a message. `param` is the member to name when refusing.
    ///
    /// # Errors
    /// `invalid_type` for other types, for items that are no objects, and at [`DEPTH_MAX`].
    pub(super) fn text_or_blocks(&mut self, raw: Raw<'_>, param: &'static str) -> Result<(), RequestError> {
        match raw {
            Some(raw) if raw.get().starts_with('"') => self.text_bytes += text_bytes(Some(raw)),
            Some(raw) => self.blocks(raw, param, Place::Content, 0)?,
            None => {}
        }
        Ok(())
    }

    fn blocks(&mut self, array: &RawValue, param: &'static str, place: Place, depth: u8) -> Result<(), RequestError> {
        if each(array, |block| self.block(block, param, place, depth))? {
            Ok(())
        } else {
            Err(invalid(param, "must be a string or an array of content blocks"))
        }
    }

    fn block(&mut self, raw: &RawValue, param: &'static str, place: Place, depth: u8) -> Result<(), RequestError> {
        if depth > DEPTH_MAX {
            return Err(invalid(param, "nests content blocks too deep"));
        }
        let block: Block<'_> = object(raw)
            .ok_or_else(|| invalid(param, "has a content block that is not an object, or that names a member twice"))?;
        let kind = word(block.kind).unwrap_or_default();
        self.kind(&kind, &block, place);
        if block.citations.is_some_and(|citations| member(citations.get(), "enabled") == Some("true")) {
            self.capability("citations");
        }
        for text in [block.text, block.thinking, block.title, block.context] {
            self.text_bytes += text_bytes(text);
        }
        self.text_bytes += block.input.map_or(0, |input| size(input.get()));
        self.pin(Kind::Signature, block.signature);
        if kind == "redacted_thinking" {
            self.pin(Kind::Signature, block.data);
        }
        for encrypted in [block.encrypted_content, block.encrypted_index, block.encrypted_stdout] {
            self.pin(Kind::Encrypted, encrypted);
        }
        self.pin(Kind::File, block.file_id);
        if kind == "text" && block.data.is_some() {
            // A document's plain-text source.
            self.text_bytes += text_bytes(block.data);
        }
        if kind == "tool_addition"
            && let Some(tool) = block.tool
        {
            self.added_tool(tool, param)?;
        }
        // Blocks inside: a result's content, a document's source, citations with their own state.
        let of_content = match &*kind {
            "tool_result" | "search_result" | "content" => Place::Content,
            _ => Place::Detail,
        };
        let details = [block.source, block.citations, block.tool_changes].map(|detail| (detail, Place::Detail));
        for (inside, place) in [(block.content, of_content)].into_iter().chain(details) {
            let Some(inside) = inside else { continue };
            match inside.get().as_bytes().first() {
                Some(b'[') => self.blocks(inside, param, place, depth + 1)?,
                Some(b'{') => self.block(inside, param, place, depth + 1)?,
                _ => self.text_bytes += text_bytes(Some(inside)),
            }
        }
        Ok(())
    }

    /// The capability that a block is.
    fn kind(&mut self, kind: &str, block: &Block<'_>, place: Place) {
        let known = match kind {
            "image" => "image",
            "document" | "container_upload" => "file",
            "tool_use" | "tool_result" => "tools",
            "text" | "thinking" | "redacted_thinking" => "text",
            _ if place == Place::Detail => "text",
            "" if block.kind.is_none() && block.text.is_some() => "text",
            // Traces of hosted tools in the history need who knows the tool. The search for tools has several names, of which its
            // call (`server_tool_use`) has the right one.
            "tool_search_tool_result" => "text",
            "mcp_tool_use" | "mcp_tool_result" | "mcp_tool_listing" => "mcp",
            "server_tool_use" => return self.capability(&named(hosted_name(&word(block.name).unwrap_or_default()))),
            other => {
                let tool = other.strip_suffix("_tool_result").map(hosted_name);
                return self.capability(&named(tool.unwrap_or(other)));
            }
        };
        self.capability(known);
    }

    /// `tools`, an item.
    ///
    /// # Errors
    /// `invalid_type` when it is not an object, its `type` not a string, or there are over [`HOSTED_TOOLS_MAX`] kinds.
    pub(super) fn tool(&mut self, raw: &RawValue, param: &'static str) -> Result<(), RequestError> {
        self.text_bytes += size(raw.get());
        let tool: Tool<'_> = object(raw)
            .ok_or_else(|| invalid(param, "has a tool that is not an object, or that names a member twice"))?;
        let kind = match word(tool.kind) {
            Some(kind) => kind,
            None if tool.kind.is_none() => "custom".into(),
            None => return Err(invalid(param, "has a tool whose `type` is not a string")),
        };
        let kind = without_date(&kind);
        match kind {
            "" | "custom" => self.capability("tools"),
            client if CLIENT_TOOLS.contains(&client) => {
                self.capability("tools");
                self.capability(client);
            }
            "mcp_toolset" => self.host("mcp", true, param)?,
            hosted => self.host(hosted, !LOOK_UPS.contains(&hosted), param)?,
        }
        Ok(())
    }

    /// `tool` of a `tool_addition` block: a whole definition, or a reference to a tool that is declared elsewhere.
    fn added_tool(&mut self, raw: &RawValue, param: &'static str) -> Result<(), RequestError> {
        let tool: Tool<'_> = object(raw)
            .ok_or_else(|| invalid(param, "adds a tool that is not an object, or that names a member twice"))?;
        match word(tool.kind).as_deref() {
            Some("tool_reference") => Ok(()),
            Some("mcp_tool_reference" | "mcp_toolset_reference") => self.host("mcp", true, param),
            _ => self.tool(tool.definition.unwrap_or(raw), param),
        }
    }

    /// Notes a tool that the provider runs.
    ///
    /// # Errors
    /// `invalid_type` over [`HOSTED_TOOLS_MAX`] kinds.
    pub(super) fn host(&mut self, name: &str, may_act: bool, param: &'static str) -> Result<(), RequestError> {
        let name = named(name);
        if self.hosted.iter().any(|tool| tool.name == name) {
            return Ok(());
        }
        if self.hosted.len() == HOSTED_TOOLS_MAX {
            return Err(invalid(param, "declares too many kinds of tools that the provider runs"));
        }
        self.capability(&name);
        self.hosted.push(HostedTool { name, may_act });
        Ok(())
    }

    /// Notes a capability.
    pub(super) fn capability(&mut self, name: &str) {
        let name = if self.capabilities.len() < features::CAPABILITIES_MAX { name } else { features::UNKNOWN };
        if !self.capabilities.contains(name) {
            self.capabilities.insert(name.to_owned());
        }
    }

    /// Notes a pin, if it is there.
    pub(super) fn pin(&mut self, kind: Kind, value: Raw<'_>) {
        if let Some(value) = value {
            self.pins.present(kind, value.get());
        }
    }
}

/// The parts of the code tool are called by names of their own.
fn hosted_name(name: &str) -> &str {
    match name {
        "bash_code_execution" | "text_editor_code_execution" => "code_execution",
        name => name,
    }
}

/// `web_search_20250305` is `web_search`: an underscore and eight digits at the end are a date.
fn without_date(kind: &str) -> &str {
    match kind.rsplit_once('_') {
        Some((name, date)) if date.len() == 8 && date.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => kind,
    }
}

/// A 400 that says what is wrong with a member, without its content.
pub(super) fn invalid(param: &'static str, what: &str) -> RequestError {
    RequestError { code: "invalid_type", message: format!("`{param}` {what}"), param: Some(param) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(content: &str) -> Result<Found, RequestError> {
        let raw = RawValue::from_string(content.to_owned()).unwrap();
        let mut found = Found::default();
        found.text_or_blocks(Some(&raw), "messages")?;
        Ok(found)
    }

    #[test]
    fn pins() {
        for (block, pins) in [
            (r#"{"type":"thinking","thinking":"x","signature":"Eq"}"#, &["signature"][..]),
            (r#"{"type":"thinking","thinking":"x","signature":""}"#, &[]),
            (r#"{"type":"redacted_thinking","data":"Eq"}"#, &["signature"]),
            (r#"{"type":"image","source":{"type":"file","file_id":"file_1"}}"#, &["file_id"]),
            (r#"{"type":"image","source":{"type":"url","url":"https://example.test/a.png"}}"#, &[]),
            (r#"{"type":"document","source":{"type":"base64","data":"JVBE"}}"#, &[]),
            (r#"{"type":"container_upload","file_id":"file_1"}"#, &["file_id"]),
            (
                r#"{"type":"tool_result","content":[{"type":"document","source":{"type":"content","content":
                    [{"type":"image","source":{"type":"file","file_id":"file_1"}}]}}]}"#,
                &["file_id"],
            ),
            (
                r#"{"type":"web_search_tool_result","content":[{"type":"web_search_result","encrypted_content":"E"}]}"#,
                &["encrypted_content"],
            ),
            (
                r#"{"type":"text","text":"x","citations":[{"type":"web_search_result_location","encrypted_index":"E"}]}"#,
                &["encrypted_content"],
            ),
            (
                r#"{"type":"code_execution_tool_result","content":{"type":"encrypted_code_execution_result",
                    "encrypted_stdout":"E","content":[{"type":"code_execution_output","file_id":"file_1"}]}}"#,
                &["encrypted_content", "file_id"],
            ),
            (
                r#"{"type":"compaction","content":"x","encrypted_content":"E","signature":"S"}"#,
                &["encrypted_content", "signature"],
            ),
            (r#"{"type":"document","citations":{"enabled":true},"source":{"type":"text","data":"x"}}"#, &[]),
            // The application's own words are its own.
            (r#"{"type":"tool_use","input":{"file_id":"x","signature":"y"}}"#, &[]),
            (r#"{"type":"tool_result","content":"{\"file_id\":\"x\"}"}"#, &[]),
        ] {
            let found = walk(&format!("[{block}]")).unwrap();
            let mut fields: Vec<_> = found.pins.presented().iter().map(|pin| pin.field).collect();
            fields.dedup();
            assert_eq!(fields, pins, "{block}");
        }
    }

    #[test]
    fn text_is_counted_and_base64_is_not() {
        for (content, bytes) in [
            (r#""hello""#, 5),
            (r#"[{"type":"text","text":"hello"},{"type":"text","text":"č\n"}]"#, 5 + 4),
            (r#"[{"type":"thinking","thinking":"hm","signature":"EEEEEEEE"}]"#, 2),
            (r#"[{"type":"tool_use","name":"f","input":{"a":1}}]"#, 7),
            (r#"[{"type":"tool_result","content":"done"}]"#, 4),
            (r#"[{"type":"tool_result","content":[{"type":"text","text":"done"}]}]"#, 4),
            (r#"[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAAAAAA"}}]"#, 0),
            (r#"[{"type":"document","title":"T","source":{"type":"text","data":"body"}}]"#, 5),
            (r#"[{"type":"document","source":{"type":"content","content":"body"}}]"#, 4),
            (r#"[{"type":"search_result","title":"T","source":"url","content":[{"type":"text","text":"body"}]}]"#, 8),
            ("[]", 0),
        ] {
            assert_eq!(walk(content).unwrap().text_bytes, bytes, "{content}");
        }
    }

    #[test]
    fn what_is_no_content_is_refused() {
        let nested = |depth: usize| {
            let (open, close) = (r#"[{"type":"tool_result","content":"#, "}]");
            format!("{}\"x\"{}", open.repeat(depth), close.repeat(depth))
        };
        assert!(walk(&nested(usize::from(DEPTH_MAX) + 1)).is_ok());
        for content in
            ["7", "{}", "[7]", "[null]", "[[]]", r#"[{"type":"text","type":"image"}]"#, &nested(8), &nested(5000)]
        {
            let error = walk(content).unwrap_err();
            assert_eq!((error.code, error.param), ("invalid_type", Some("messages")), "{content:.60}");
        }
    }

    #[test]
    fn tools() {
        // Type, hosted as, may act, further capability.
        for (kind, hosted, capabilities) in [
            ("null", None, &["tools"][..]),
            ("\"custom\"", None, &["tools"]),
            ("\"\"", None, &["tools"]),
            ("\"bash_20250124\"", None, &["bash", "tools"]),
            ("\"text_editor_20250728\"", None, &["text_editor", "tools"]),
            ("\"computer_20251124\"", None, &["computer", "tools"]),
            ("\"computer_toolset_20260801\"", None, &["computer_toolset", "tools"]),
            ("\"browser_toolset_20260801\"", None, &["browser_toolset", "tools"]),
            ("\"memory_20250818\"", None, &["memory", "tools"]),
            ("\"web_search_20250305\"", Some(("web_search", false)), &["web_search"]),
            ("\"web_fetch_20260318\"", Some(("web_fetch", false)), &["web_fetch"]),
            ("\"tool_search_tool_regex\"", Some(("tool_search_tool_regex", false)), &["tool_search_tool_regex"]),
            ("\"tool_search_tool_bm25_20251119\"", Some(("tool_search_tool_bm25", false)), &["tool_search_tool_bm25"]),
            ("\"advisor_20260301\"", Some(("advisor", false)), &["advisor"]),
            ("\"code_execution_20250825\"", Some(("code_execution", true)), &["code_execution"]),
            ("\"mcp_toolset\"", Some(("mcp", true)), &["mcp"]),
            ("\"robot_arm_20290101\"", Some(("robot_arm", true)), &["robot_arm"]),
            ("\"robot arm\\n2029\"", Some(("robot_arm_2029", true)), &["robot_arm_2029"]),
            ("\"web_search_2025\"", Some(("web_search_2025", true)), &["web_search_2025"]),
        ] {
            let mut found = Found::default();
            let raw = RawValue::from_string(format!(r#"{{"type":{kind},"name":"n"}}"#)).unwrap();
            found.tool(&raw, "tools").unwrap();
            found.tool(&raw, "tools").unwrap();
            let tool = found.hosted.first().map(|tool| (tool.name.as_str(), tool.may_act));
            assert_eq!((tool, found.hosted.len()), (hosted, usize::from(hosted.is_some())), "{kind}");
            assert_eq!(found.capabilities.into_iter().collect::<Vec<_>>(), capabilities, "{kind}");
            assert_eq!(found.text_bytes, size(raw.get()) * 2, "{kind}");
        }
        for tool in ["7", "[]", r#"{"type":7}"#, r#"{"type":"custom","type":"mcp_toolset"}"#] {
            let raw = RawValue::from_string(tool.to_owned()).unwrap();
            assert_eq!(Found::default().tool(&raw, "tools").unwrap_err().code, "invalid_type", "{tool}");
        }
    }

    #[test]
    fn tools_added_in_the_middle_count() {
        for (tool, hosted) in [
            (
                r#"{"type":"tool_definition","definition":{"type":"code_execution_20250825"}}"#,
                Some(("code_execution", true)),
            ),
            (r#"{"type":"tool_definition","definition":{"name":"f","input_schema":{}}}"#, None),
            (r#"{"type":"tool_reference","name":"f"}"#, None),
            (r#"{"type":"mcp_tool_reference","server_name":"s","name":"f"}"#, Some(("mcp", true))),
            (r#"{"type":"mcp_toolset_reference","server_name":"s"}"#, Some(("mcp", true))),
            (r#"{"type":"hologram"}"#, Some(("hologram", true))),
        ] {
            let addition = format!(r#"{{"type":"tool_addition","tool":{tool}}}"#);
            for block in [addition.clone(), format!(r#"{{"type":"compaction","tool_changes":[{addition}]}}"#)] {
                let found = walk(&format!("[{block}]")).unwrap();
                let first = found.hosted.first().map(|tool| (tool.name.as_str(), tool.may_act));
                assert_eq!(first, hosted, "{block}");
            }
        }
    }

    #[test]
    fn the_bound_on_hosted_tools_holds() {
        let tool = |n: usize| RawValue::from_string(format!(r#"{{"type":"unknown_{n}"}}"#)).unwrap();
        let mut found = Found::default();
        for n in 0..HOSTED_TOOLS_MAX {
            found.tool(&tool(n), "tools").unwrap();
        }
        found.tool(&tool(0), "tools").unwrap();
        assert_eq!(found.tool(&tool(HOSTED_TOOLS_MAX), "tools").unwrap_err().code, "invalid_type");
    }
}
