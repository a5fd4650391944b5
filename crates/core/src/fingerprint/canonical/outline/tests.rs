use super::*;

/// Closes an object whose members have these names and no values; the answer is what is listed
/// and the text, or the second twin.
fn closed(names: &[&str], left_out: &[usize]) -> Result<(Outline, String), u32> {
    let members: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    let body = format!("{{{}}}", members.join(","));
    let mut text = Text::new(body.as_bytes());
    let mut outline = Outline::default();
    let mark = outline.open(&body.as_bytes()[1..], &text).unwrap();
    let mut start = 1;
    for (i, member) in members.iter().enumerate() {
        outline.start_member(order::key(&text.tail(start)[1..]).0, start, &text).unwrap();
        if left_out.contains(&i) {
            outline.leave_out();
        }
        start += member.len() as u32 + 1;
    }
    match outline.close_object(mark, b"}", &mut text, &mut Pace::new(&mut || ())) {
        Ok(()) => {
            let text = text.finish(body.len()).unwrap().into_owned();
            Ok((outline, String::from_utf8(text).unwrap()))
        }
        Err(Fault::Duplicate(number)) => Err(number),
        Err(Fault::OutOfMemory) => panic!("out of memory"),
    }
}

fn is_empty(outline: &Outline) -> bool {
    outline.containers.is_empty() && outline.arranged.is_empty() && outline.noted.is_empty()
}

#[test]
fn what_is_in_order_stays() {
    let alike = ["a long name, 1", "a long name, 2"];
    for names in [&[][..], &[""], &["a", "b", "c"], &alike] {
        let (outline, text) = closed(names, &[]).unwrap();
        assert!(is_empty(&outline), "{names:?}");
        assert_eq!(text.matches('"').count(), 2 * names.len());
    }
}

#[test]
fn small_objects_are_brought_into_order() {
    let (outline, text) = closed(&["c", "a", "b"], &[]).unwrap();
    assert!(is_empty(&outline));
    assert_eq!(text, r#"{"a","b","c"}"#);
}

#[test]
fn others_are_listed() {
    let names = ["a long name, 3", "a long name, 1", "a long name, 2"];
    let (outline, text) = closed(&names, &[]).unwrap();
    assert_eq!(text, r#"{"a long name, 3","a long name, 1","a long name, 2"}"#);
    assert_eq!(outline.arranged, [(18, 34), (35, 51), (1, 17)]);
    assert_eq!(outline.containers, [Reordered { start: 1, end: 51, first: 0, last: 3, next: 1 }]);
    let long = "b".repeat(text::LONGEST - 5);
    assert!(is_empty(&closed(&[&long[1..], "a"], &[]).unwrap().0));
    assert_eq!(closed(&[&long, "a"], &[]).unwrap().0.arranged.len(), 2);
}

#[test]
fn what_is_left_out_is_missing() {
    assert_eq!(closed(&["a", "b", "c"], &[1]).unwrap().0.arranged, [(1, 4), (9, 12)]);
    assert_eq!(closed(&["b", "a"], &[0]).unwrap().0.arranged, [(5, 8)]);
    let (outline, _) = closed(&["a"], &[0]).unwrap();
    assert!(outline.arranged.is_empty() && outline.containers[0].is_reordered());
}

#[test]
fn few_members_and_many_are_arranged_alike() {
    let names: Vec<String> = (0..100).map(|i| format!("{:02}", (99 - i) * 37 % 100)).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    for count in [2, 31, 32, 33, 100] {
        let mut expected = names[..count].to_vec();
        expected.sort();
        let (outline, text) = closed(&names[..count], &[]).unwrap();
        assert_eq!(is_empty(&outline), count <= order::FEW, "{count}");
        let name = |start: usize| &text[start + 1..start + 3];
        let found: Vec<&str> = match is_empty(&outline) {
            true => (0..count).map(|i| name(1 + i * 5)).collect(),
            false => outline.arranged.iter().map(|member| name(member.0 as usize)).collect(),
        };
        assert_eq!(found, expected, "{count}");
    }
}

#[test]
fn the_second_of_two_twins_is_named() {
    assert_eq!(closed(&["b", "a", "b"], &[]).err(), Some(2));
    assert_eq!(closed(&["b", "a", "b"], &[0]).err(), Some(2));
    let mut names = vec!["x"; 40];
    names[0] = "y";
    assert_eq!(closed(&names, &[]).err(), Some(2));
}
