//! Tools that the provider itself would run, as a chat-completions request declares them.
//!
//! In: the members `tools`, `plugins`, `web_search_options`, `search_parameters`, the model's name. Out: [`HostedTool`]s. Why so
//! many places: OpenAI's chat has only `web_search_options`, but the compatible servers took the tool types of their other formats over
//! (Groq, Z.ai, xAI, OpenRouter's server tools) or made members of their own. A type that is not known here may act: the price
//! of a wrong guess is a failover that does not happen, not a second effect. Deliberately not here: functions and custom
//! tools, which the application runs itself.

use crate::protocol::features;
use crate::protocol::json_walk::{elements, member, members, text};
use crate::protocol::request::{HostedTool, RequestError};

/// Hosted tools kept of one request: three times the types that are known. Of those over it only whether they may act is kept.
pub(in crate::protocol) const TOOLS_MAX: usize = 64;

/// (type without its date, name as a capability, whether it may change the world)
const KNOWN: &[(&str, &str, bool)] = &[
    ("mcp", "mcp", true),
    ("code_interpreter", "code_interpreter", true),
    ("code_execution", "code_interpreter", true), // xAI, Mistral
    ("computer", "computer_use", true),
    ("computer_use", "computer_use", true),
    ("computer_use_preview", "computer_use", true),
    ("shell", "shell", true),
    ("local_shell", "shell", true),
    ("bash", "shell", true),
    ("web_search", "web_search", false),
    ("web_search_preview", "web_search", false),
    ("web_fetch", "web_fetch", false),
    ("live_search", "web_search", false), // xAI
    ("x_search", "web_search", false),    // xAI
    ("google_search", "web_search", false),
    ("file_search", "file_search", false),
    ("retrieval", "file_search", false), // Z.ai
    ("image_generation", "image_generation", false),
    ("tool_search", "tool_search", false),
    ("datetime", "datetime", false), // OpenRouter
];

/// OpenRouter's `plugins`; those that are no tools (they change the prompt, the answer or the choice of a model) have no name.
const PLUGINS: &[(&str, &str)] = &[
    ("web", "web_search"),
    ("file-parser", "file_parser"),
    ("response-healing", ""),
    ("context-compression", ""),
    ("moderation", ""),
    ("auto-router", ""),
];

/// Adds `tool` unless it is there already; of two with one name, the one that may act stays.
pub(in crate::protocol) fn add(tools: &mut Vec<HostedTool>, tool: HostedTool) {
    let full = tools.len() >= TOOLS_MAX;
    if let Some(each) = tools.iter_mut().find(|each| each.name == tool.name) {
        each.may_act |= tool.may_act;
    } else if !full {
        tools.push(tool);
    } else if let Some(last) = tools.last_mut() {
        last.may_act |= tool.may_act; // One entry stands for all that is left.
    }
}

/// What a function without a `type` may be made of; a further object in it is a tool of the provider's, named by the member.
const OF_FUNCTIONS: &[&str] =
    &["function", "name", "description", "parameters", "input_schema", "strict", "cache_control"];

/// One element of `tools`: `None` if it is a function or custom tool. An element without a type that names a function is one
/// too, as lenient servers read it; else a member names the tool (Gemini's style: `{"google_search": {}}`).
///
/// # Errors
/// `invalid_type` when `type` is given twice (servers differ in which one counts, so it could be a function here and a tool of
/// the provider's there) or is no string.
pub(in crate::protocol) fn of_tool(tool: &str) -> Result<Option<HostedTool>, RequestError> {
    let mut kinds = members(tool).filter(|(name, _)| *name == "type").map(|(_, value)| value);
    let kind = kinds.next().filter(|kind| *kind != "null");
    if kinds.next().is_some() {
        return Err(invalid("tools", "has a tool that gives its `type` twice"));
    }
    if let Some(kind) = kind {
        let kind = text(kind).ok_or_else(|| invalid("tools", "has a tool whose `type` is not a string"))?;
        return Ok((kind != "function" && kind != "custom").then(|| of_type(&kind)));
    }
    let mut others = members(tool).filter(|(name, _)| *name != "type" && !OF_FUNCTIONS.contains(name));
    if member(tool, "function").or(member(tool, "name")).is_some() {
        return Ok(others.find(|(_, value)| value.starts_with('{')).map(|(name, _)| of_type(name)));
    }
    Ok(Some(others.next().map_or_else(|| of_type(features::UNKNOWN), |(name, _)| of_type(name))))
}

/// A 400 that says what is wrong with a member, without its content.
pub(in crate::protocol) fn invalid(param: &'static str, what: &str) -> RequestError {
    RequestError { code: "invalid_type", message: format!("\"{param}\" {what}"), param: Some(param) }
}

fn of_type(kind: &str) -> HostedTool {
    let bare = without_date(kind.strip_prefix("openrouter:").unwrap_or(kind));
    let known = KNOWN.iter().find(|(name, ..)| *name == bare);
    let (name, may_act) = known.map_or((bare, true), |(_, name, may_act)| (*name, *may_act));
    HostedTool { name: features::named(name), may_act }
}

/// `web_search_20250305`, `web_search_preview_2025_03_11` and `x-2025-03-11` without their date.
fn without_date(kind: &str) -> &str {
    let end = kind.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_' || c == '-');
    let digits = kind.get(end.len()..).unwrap_or_default().bytes().filter(u8::is_ascii_digit).count();
    if digits == 8 && !end.is_empty() { end } else { kind }
}

/// The elements of `plugins`.
pub(in crate::protocol) fn of_plugins(json: &str, tools: &mut Vec<HostedTool>) {
    for plugin in elements(json) {
        if member(plugin, "enabled") == Some("false") {
            continue;
        }
        let id = member(plugin, "id").and_then(text).unwrap_or_default();
        match PLUGINS.iter().find(|(known, _)| *known == id) {
            Some((_, "")) => {}
            Some((_, name)) => add(tools, HostedTool { name: (*name).to_owned(), may_act: false }),
            None => add(tools, of_type(&id)),
        }
    }
}

/// A search by the provider.
pub(in crate::protocol) fn web_search() -> HostedTool {
    HostedTool { name: "web_search".to_owned(), may_act: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_their_names() {
        for (tool, name, may_act) in [
            (r#"{"type":"mcp","server_label":"x"}"#, "mcp", true),
            (r#"{"type":"code_interpreter","container":{"type":"auto"}}"#, "code_interpreter", true),
            (r#"{"type":"computer_use_preview"}"#, "computer_use", true),
            (r#"{"type":"computer_20250124"}"#, "computer_use", true),
            (r#"{"type":"local_shell"}"#, "shell", true),
            (r#"{"type":"web_search"}"#, "web_search", false),
            (r#"{"type":"web_search_preview_2025_03_11"}"#, "web_search", false),
            (r#"{"type":"web_search_20250305","name":"web_search"}"#, "web_search", false),
            (r#"{"type":"web_search-2025-03-05"}"#, "web_search", false),
            (r#"{"type":"openrouter:web_search"}"#, "web_search", false),
            (r#"{"type":"file_search"}"#, "file_search", false),
            (r#"{"type":"image_generation"}"#, "image_generation", false),
            (r#"{"google_search":{}}"#, "web_search", false),
            (r#"{"type":"browser_automation"}"#, "browser_automation", true),
            (r#"{"type":"gpt_4"}"#, "gpt_4", true),
            (r#"{"type":"12345678"}"#, "12345678", true),
            (r#"{"type":""}"#, "unknown", true),
            (r#"{"type":"MCP"}"#, "MCP", true),
            (r#"{"type":null,"mcp":{}}"#, "mcp", true),
            (r#"{"name":"f","parameters":{},"code_execution":{}}"#, "code_interpreter", true),
            (r#"{"code_execution":{},"function":{}}"#, "code_interpreter", true),
            ("[{\"type\":\"mcp\"}]", "unknown", true),
            ("{}", "unknown", true),
            ("\"web_search\"", "unknown", true),
        ] {
            assert_eq!(of_tool(tool), Ok(Some(HostedTool { name: name.to_owned(), may_act })), "{tool}");
        }
        for own in [
            r#"{"type":"function","function":{"name":"mcp"}}"#,
            r#"{"type":"custom","custom":{"name":"sql"}}"#,
            r#"{"function":{"name":"f"}}"#,
            r#"{"name":"f","parameters":{}}"#,
            r#"{"type":null,"name":"f","parameters":{},"id":"x"}"#,
        ] {
            assert_eq!(of_tool(own), Ok(None), "{own}");
        }
        for doubtful in [
            r#"{"type":"mcp","type":"function"}"#,
            r#"{"type":"function","type":"function"}"#,
            r#"{"type":null,"type":"mcp"}"#,
            r#"{"type":["mcp"],"function":{}}"#,
            r#"{"type":7}"#,
        ] {
            let error = of_tool(doubtful).unwrap_err();
            assert_eq!((error.code, error.param), ("invalid_type", Some("tools")), "{doubtful}");
        }
    }

    #[test]
    fn plugins() {
        let mut tools = Vec::new();
        of_plugins(
            r#"[{"id":"web","max_results":3},{"id":"web"},{"id":"response-healing"},{"id":"new"},{"id":"other","enabled":false}]"#,
            &mut tools,
        );
        let names: Vec<_> = tools.iter().map(|tool| (tool.name.as_str(), tool.may_act)).collect();
        assert_eq!(names, [("web_search", false), ("new", true)]);
    }

    #[test]
    fn over_the_bound_an_acting_tool_is_not_lost() {
        let mut tools = Vec::new();
        for i in 0..TOOLS_MAX {
            add(&mut tools, HostedTool { name: format!("look_up_{i}"), may_act: false });
        }
        add(&mut tools, HostedTool { name: "mcp".to_owned(), may_act: true });
        assert_eq!(tools.len(), TOOLS_MAX);
        assert!(tools.iter().any(|tool| tool.may_act));
    }
}
