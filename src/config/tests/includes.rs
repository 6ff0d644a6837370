//! `include`: what an included file may hold, where its problems are said to be, and its bounds. On a real disk.

use std::path::Path;

use super::super::{Code, Loaded, Problem, load, load_seen};
use super::{NOW, env};
use crate::check::findings;

const MAIN: &str = r#"include = [{ path = "workflows/*.toml", allow = ["workflow"] }]

[provider.p]
kind = "openai"
api_key = "env:KEY"

[route.main]
provider = "p"
"#;

const WORKFLOW: &str = "[workflow.chat]\nprimary = \"main\"\n";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        for (name, text) in files {
            folder.write(name, text);
        }
        folder
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn load(&self) -> Result<Loaded, Vec<Problem>> {
        load(&self.0.path().join("rubicon.toml"), &env, NOW)
    }

    /// `file:line: code` of every problem, warnings of a good config included.
    fn found(&self) -> Vec<String> {
        let list = match self.load() {
            Ok(loaded) => loaded.warnings,
            Err(list) => list,
        };
        list.iter().map(|problem| self.place(problem)).collect()
    }

    fn place(&self, problem: &Problem) -> String {
        let file = Path::new(&problem.file).strip_prefix(self.0.path()).unwrap().display().to_string();
        format!("{file}:{}: {}", problem.line, problem.code.name())
    }
}

#[test]
fn an_included_file_is_as_if_it_stood_here() {
    let allow_all = "include = [{ path = \"a.toml\", allow = [\"approval\", \"client\", \"operator\", \"route\", \"provider\"] }, \
        { path = \"workflows/*.toml\", allow = [\"workflow\"] }]\n[[approval]]\nworkflow = \"chat\"\nroute = \"main\"\npurpose = \"failover\"\n";
    let a = "[[approval]]\nworkflow = \"chat\"\nroute = \"other\"\npurpose = \"failover\"\n[route.other]\nprovider = \"p\"\n\
        [[client]]\nname = \"web\"\nkeys = [\"file:web.key\"]\n[[operator]]\nname = \"ana\"\ntoken = \"env:TOKEN_OF_ANA\"\nrole = \"viewer\"\n";
    let main = allow_all.to_owned() + MAIN.split_once('\n').unwrap().1;
    let folder = Folder::new(&[
        ("rubicon.toml", &main),
        ("a.toml", a),
        // Paths start at the config's folder, whichever file they stand in.
        ("web.key", "key-of-web"),
        ("workflows/one.toml", WORKFLOW),
        ("workflows/two.toml", "[workflow.mail]\nprimary = \"main\"\nequivalents = [\"other\"]\n"),
        ("workflows/.hidden.toml", "nonsense"),
        ("workflows/notes.txt", "nonsense"),
    ]);
    let loaded = folder.load().unwrap_or_else(|problems| panic!("{problems:#?}"));
    let settings = &loaded.settings;
    let names: Vec<&str> = settings.workflows.keys().map(|name| name.as_str()).collect();
    assert_eq!(names, ["chat", "mail"]);
    assert_eq!((settings.approvals.len(), settings.clients.len(), settings.operators.len()), (2, 1, 1));
    // Indices go on from file to file, and warnings and findings name the file that has the key.
    let places: Vec<(String, &str)> = loaded.warnings.iter().map(|p| (folder.place(p), p.key.as_str())).collect();
    let unused = |place: &str, key: &'static str| (format!("{place}: approval_unused"), key);
    assert_eq!(places, [unused("rubicon.toml:2", "approval[0]"), unused("a.toml:1", "approval[1]")]);
    let found: Vec<String> = findings(&loaded, NOW).iter().map(|problem| folder.place(problem)).collect();
    for place in ["workflows/two.toml:3: failover_disabled", "a.toml:7: client_without_workflows"] {
        assert!(found.contains(&place.to_owned()), "{found:?}");
    }
}

#[test]
fn only_what_is_allowed() {
    let more = "[route.mine]\nprovider = \"p\"\n[[approval]]\nworkflow = \"chat\"\nroute = \"mine\"\npurpose = \"failover\"\n\
        [server]\nlisten = \"0.0.0.0:1\"\n[nonsense]\n";
    let folder = Folder::new(&[
        ("rubicon.toml", MAIN),
        ("workflows/a.toml", &format!("include = [{{ path = \"b\", allow = [\"route\"] }}]\n{WORKFLOW}{more}")),
    ]);
    let a = |line: u32, code: &str| format!("workflows/a.toml:{line}: {code}");
    let forbidden = "not_allowed_here";
    let expected = [a(1, forbidden), a(4, forbidden), a(6, forbidden), a(10, forbidden), a(12, "unknown_key")];
    assert_eq!(folder.found(), expected);
    let problems = folder.load().unwrap_err();
    assert!(problems[1].message.contains("its `include` allows workflow"), "{}", problems[1].message);
    assert_eq!(problems[1].key, "route");
}

#[test]
fn problems_are_where_they_are() {
    for (included, expected) in [
        ("[workflow.chat]\nprimary = \"mian\"\n", vec!["workflows/a.toml:2: unresolved"]),
        (
            "[workflow.chat]\n\nenvelope = { max_attempts = 99 }\n",
            vec!["workflows/a.toml:1: missing_key", "workflows/a.toml:3: out_of_range"],
        ),
        ("[workflow.chat\n", vec!["workflows/a.toml:1: syntax"]),
        ("\"é\" = 1\n[workflow.chat]\nprimary = \"main\"\n", vec!["workflows/a.toml:1: unknown_key"]),
    ] {
        let folder = Folder::new(&[("rubicon.toml", MAIN), ("workflows/a.toml", included)]);
        assert_eq!(folder.found(), expected, "{included}");
    }
    // Nothing included has a workflow: that is the config's problem.
    let folder = Folder::new(&[("rubicon.toml", MAIN), ("workflows/a.toml", "")]);
    assert_eq!(folder.found(), ["rubicon.toml:1: missing_key"]);
}

#[test]
fn one_name_in_two_files_is_an_error_that_names_both() {
    let folder = Folder::new(&[
        ("rubicon.toml", &format!("{MAIN}{WORKFLOW}")),
        ("workflows/a.toml", WORKFLOW),
        ("workflows/b.toml", &format!("\n{WORKFLOW}")),
    ]);
    assert_eq!(folder.found(), ["workflows/a.toml:1: duplicate", "workflows/b.toml:2: duplicate"]);
    for problem in folder.load().unwrap_err() {
        assert!(problem.message.ends_with("rubicon.toml:9, too"), "{}", problem.message);
        assert_eq!(problem.key, "workflow.chat");
    }
}

/// `(path and allow of the one include, problems)`; `workflows/` holds one good file.
#[test]
fn paths() {
    for (include, expected) in [
        ("path = \"workflows/a.toml\", allow = [\"workflow\"]", vec![]),
        ("path = \"./workflows/*\", allow = [\"workflow\"]", vec![]),
        ("path = \"work*/a.toml\", allow = [\"workflow\"]", vec!["invalid_value"]),
        ("path = \"workflows/\", allow = [\"workflow\"]", vec!["invalid_value"]),
        ("path = \"workflows/b.toml\", allow = [\"workflow\"]", vec!["config_unreadable"]),
        ("path = \"workflows\", allow = [\"workflow\"]", vec!["config_unreadable"]),
        ("path = \"nowhere/*.toml\", allow = [\"workflow\"]", vec!["config_unreadable"]),
        ("path = \"workflows/*.tml\", allow = [\"workflow\"]", vec!["include_empty"]),
        ("path = \"rubicon.toml\", allow = [\"workflow\"]", vec!["duplicate"]),
        ("path = \"*.toml\", allow = [\"workflow\"]", vec!["duplicate"]),
        ("path = \"workflows/a.toml\", allow = []", vec!["invalid_value"]),
        ("path = \"workflows/a.toml\", allow = [\"server\"]", vec!["invalid_value"]),
        ("path = \"workflows/a.toml\"", vec!["missing_key"]),
        ("allow = [\"workflow\"]", vec!["missing_key"]),
        ("path = \"workflows/a.toml\", allow = [\"workflow\"], alow = 1", vec!["unknown_key"]),
    ] {
        let main = format!("include = [{{ {include} }}]\n{}", MAIN.split_once('\n').unwrap().1);
        let folder = Folder::new(&[("rubicon.toml", &main), ("workflows/a.toml", WORKFLOW)]);
        let mut expected: Vec<String> = expected.iter().map(|code| format!("rubicon.toml:1: {code}")).collect();
        let found = folder.found();
        if found.len() > expected.len() {
            // Nothing was included, so there is no workflow.
            expected.push("rubicon.toml:1: missing_key".to_owned());
        }
        assert_eq!(found.iter().collect::<std::collections::BTreeSet<_>>(), expected.iter().collect(), "{include}");
    }
    let twice = MAIN.replacen("[{", "[{ path = \"workflows/a.toml\", allow = [\"workflow\"] }, {", 1);
    let folder = Folder::new(&[("rubicon.toml", &twice), ("workflows/a.toml", WORKFLOW)]);
    assert_eq!(folder.found(), ["rubicon.toml:1: duplicate"]);
}

#[test]
fn the_number_and_the_size_of_files_are_bounded() {
    let folder = Folder::new(&[("rubicon.toml", MAIN)]);
    for at in 0..=256 {
        folder.write(&format!("workflows/{at}.toml"), &format!("[workflow.w{at}]\nprimary = \"main\"\n"));
    }
    assert_eq!(folder.found(), ["rubicon.toml:1: config_unreadable"]);
    std::fs::remove_file(folder.0.path().join("workflows/0.toml")).unwrap();
    assert_eq!(folder.load().map(|loaded| loaded.settings.workflows.len()).ok(), Some(256));
    let padding = "#".repeat((1 << 20) - 64);
    for at in 1..=9 {
        folder.write(&format!("workflows/{at}.toml"), &format!("[workflow.w{at}]\nprimary = \"main\"\n{padding}\n"));
    }
    assert_eq!(folder.found(), ["rubicon.toml:1: config_unreadable"]);
    folder.write("workflows/1.toml", &"#".repeat((1 << 20) + 1));
    let found = folder.load().unwrap_err();
    assert!(
        found.iter().any(|problem| problem.code == Code::ConfigUnreadable && problem.message.contains("too large"))
    );
}

/// Everything that would change what a load reads changes what it saw.
#[test]
fn a_load_remembers_what_it_looked_at() {
    let main = MAIN.replace("env:KEY", "file:key");
    let folder = Folder::new(&[("rubicon.toml", &main), ("key", "k"), ("workflows/a.toml", WORKFLOW)]);
    let path = folder.0.path().join("rubicon.toml");
    let changes: [&dyn Fn(); 6] = [
        &|| folder.write("rubicon.toml", &format!("{main}#")),
        &|| folder.write("key", "another"),
        &|| folder.write("workflows/a.toml", &format!("{WORKFLOW}#")),
        &|| folder.write("workflows/b.toml", "[workflow.b]\nprimary = \"main\"\n"),
        &|| std::fs::remove_file(folder.0.path().join("key")).unwrap(),
        &|| folder.write("key", "k"),
    ];
    for (at, change) in changes.iter().enumerate() {
        let (_, seen) = load_seen(&path, &env, NOW);
        let again = || seen.iter().map(super::super::Seen::again).collect::<Vec<_>>();
        assert_eq!(again(), seen, "{at}: nothing changed");
        change();
        assert_ne!(again(), seen, "{at}");
    }
}

#[test]
fn what_an_unreadable_file_would_have_brought_is_not_missing() {
    let client = "\n[[client]]\nname = \"c\"\nkeys = [\"env:KEY\"]\nworkflows = [\"chat\"]\nnope = 1\n";
    for path in ["nowhere.toml", "nowhere/*.toml", "*/a.toml"] {
        let main = MAIN.replace("workflows/*.toml", path) + client;
        let found = Folder::new(&[("rubicon.toml", &main)]).found();
        let first = if path.starts_with('*') { "invalid_value" } else { "config_unreadable" };
        assert_eq!(found, [format!("rubicon.toml:1: {first}"), "rubicon.toml:14: unknown_key".to_owned()], "{path}");
    }
}

#[test]
fn tools_may_stand_in_a_file_of_their_own() {
    let main = format!(
        "include = [{{ path = \"tools.toml\", allow = [\"tool\"] }}]\n{}\n{WORKFLOW}",
        MAIN.split_once('\n').unwrap().1
    );
    let folder = Folder::new(&[("rubicon.toml", &main), ("tools.toml", "[tool.refund]\nkey_fields = [\"/id\"]\n")]);
    assert_eq!(folder.found(), [] as [String; 0]);
    assert_eq!(folder.load().unwrap().settings.tools.len(), 1);
}
