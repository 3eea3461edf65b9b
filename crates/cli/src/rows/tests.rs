use super::*;

/// What the rows of `input` are, one line of text each.
fn read(format: Format, input: &[u8]) -> Vec<String> {
    let mut rows = match Rows::open(input, format, b',', None) {
        Ok(rows) => rows,
        Err(e) => return vec![e.to_string()],
    };
    let mut said = Vec::new();
    while let Some(row) = rows.next_row().unwrap() {
        said.push(match row {
            Ok((line, Row::Fields { fields, .. })) => format!("{line} {fields:?}"),
            Ok((line, Row::Object { text, .. })) => format!("{line} {text}"),
            Err(bad) => bad.to_string(),
        });
    }
    said
}

fn check(format: Format, input: &str, expected: &[&str]) {
    assert_eq!(read(format, input.as_bytes()), expected, "{input:?}");
}

#[test]
fn csv_fields_may_hold_commas_quotes_and_line_endings() {
    check(Format::Csv, "a,b\n1,2\n", &[r#"2 ["1", "2"]"#]);
    check(Format::Csv, "a,b\r\n1,2\r\n\r\n3,\r\n", &[r#"2 ["1", "2"]"#, r#"4 ["3", ""]"#]);
    check(Format::Csv, "a,b\n\"x,y\",\"say \"\"no\"\"\"\n", &[r#"2 ["x,y", "say \"no\""]"#]);
    check(Format::Csv, "a,b\n\"1\r\n2\",3\n4,5", &[r#"2 ["1\r\n2", "3"]"#, r#"4 ["4", "5"]"#]);
    check(Format::Csv, "a,b\n5\" pipe,1\n", &[r#"2 ["5\" pipe", "1"]"#]);
    check(Format::Csv, "\u{feff}a,b\n1,2\n", &[r#"2 ["1", "2"]"#]);
}

#[test]
fn a_slip_costs_one_line_and_names_it() {
    check(Format::Csv, "a,b\n1\n2,3\n", &["line 2: 1 field where the header names 2", r#"3 ["2", "3"]"#]);
    check(
        Format::Csv,
        "a,b\n1,\"open\n2,3\n4,5\n",
        &["line 2: the quote opened in column 2 is never closed", r#"3 ["2", "3"]"#, r#"4 ["4", "5"]"#],
    );
    check(
        Format::Csv,
        "a,b\n\"1,2\n3,4\n\"5\",6\n",
        &["line 2: text after the closing quote in column 1", r#"3 ["3", "4"]"#, r#"4 ["5", "6"]"#],
    );
    check(
        Format::Jsonl,
        "{\"a\":1}\n{\n[1]\n",
        &[
            r#"1 {"a":1}"#,
            "line 2: not JSON: EOF while parsing an object at column 1",
            "line 3: a JSON list, and a row has to be an object",
        ],
    );
    assert_eq!(read(Format::Csv, b"a,b\n1,\xff\n2,3\n"), ["line 2: not UTF-8 from byte 0 on", r#"3 ["2", "3"]"#]);
}

#[test]
fn headers_that_cannot_be_used_are_refused() {
    check(Format::Csv, "", &["the file is empty: its first line must name the columns"]);
    check(Format::Csv, "a,b,a\n", &["the header names column \"a\" twice"]);
    check(Format::Csv, "a,\"b\n", &["the header is malformed: line 1: the quote opened in column 2 is never closed"]);
}

#[test]
fn tsv_escapes_read_back() {
    let field = "tab\there \\ line\nend\r";
    let input = format!("a\tb\n{}\tx\n", tsv::escape(field));
    check(Format::Tsv, &input, &[&format!("2 {:?}", [field, "x"])]);
}

#[test]
fn json_keeps_the_text_of_a_row() {
    check(Format::Jsonl, " {\"b\": 1.0, \"a\":[2]} \r\n\n", &[r#"1 {"b": 1.0, "a":[2]}"#]);
}

#[test]
fn a_line_above_the_limit_is_skipped_and_not_held() {
    let mut lines = lines::Lines::new(&b"short\nlonger than ten\nlast\n"[..], 10);
    let seen: Vec<_> =
        std::iter::from_fn(|| lines.next().unwrap()).map(|line| (line.no, line.bytes.is_some())).collect();
    assert_eq!(seen, [(1, true), (2, false), (3, true)]);
}

#[test]
fn any_bytes_are_an_input() {
    let pieces: [&[u8]; 12] =
        [b"\"", b",", b"\n", b"\r\n", b"\t", b"{", b"}", b"\"a\":1", b"\xff\xfe", b"\\", b"abc", b"\xef\xbb\xbf"];
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..3_000 {
        let mut input = Vec::new();
        for _ in 0..state % 40 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            input.extend_from_slice(pieces[(state >> 33) as usize % pieces.len()]);
        }
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) >> 1;
        exercise(&input);
    }
}

#[test]
fn nested_brackets_do_not_exhaust_the_stack() {
    let deep = "{\"a\":".repeat(100_000);
    assert!(read(Format::Jsonl, deep.as_bytes())[0].starts_with("line 1: not JSON: recursion limit exceeded"));
}
