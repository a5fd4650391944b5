use super::*;

/// The canonical text of a whole string with its quotation marks, and where it ends.
fn canonical(input: &[u8]) -> Result<String, CanonicalError> {
    let mut ignore = || ();
    let mut text = Text::new(input);
    let mut pace = Pace::new(&mut ignore);
    let scanned = scan(input, 1, &mut text, &mut pace)?;
    let whole = text.finish(scanned.end + 1)?;
    let mut again = Vec::new();
    assert_eq!(respell(input, 0, &mut again, &mut pace), Ok(scanned.end + 1));
    assert_eq!(again, *whole);
    Ok(String::from_utf8(whole.into_owned()).unwrap())
}

fn fault(input: &[u8]) -> (Violation, usize) {
    match canonical(input) {
        Err(CanonicalError::Invalid { violation, at }) => (violation, at),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_ascii_character_has_one_spelling() {
    for code in 0..128u8 {
        let long = format!("\"\\u{code:04X}\"");
        let expected = serde_json::to_string(&char::from(code)).unwrap();
        assert_eq!(canonical(long.as_bytes()).unwrap(), expected, "{long}");
        assert_eq!(canonical(expected.as_bytes()).unwrap(), expected);
    }
}

#[test]
fn escapes() {
    for (from, to) in [
        (r#""\/\b\f\n\r\t\"\\""#, r#""/\b\f\n\r\t\"\\""#),
        (r#""\uD83D\ude00x\u00e9""#, "\"😀xé\""),
        (r#""\u2028\uFFFF""#, "\"\u{2028}\u{ffff}\""),
    ] {
        assert_eq!(canonical(from.as_bytes()).unwrap(), to);
    }
}

#[test]
fn faults_say_where() {
    use Violation::*;
    for (input, expected) in [
        (&br#""abc"#[..], (UnexpectedEnd, 4)),
        (b"\"a\nb\"", (ControlCharacter, 2)),
        (br#""ab\x41""#, (InvalidEscape, 3)),
        (br#""\u00g0""#, (InvalidEscape, 1)),
        (br#""\u00"#, (UnexpectedEnd, 5)),
        (br#""\"#, (UnexpectedEnd, 2)),
        (br#""x\ud800""#, (LoneSurrogate, 2)),
        (br#""\ud800\u0041""#, (LoneSurrogate, 1)),
        (br#""\udc00\ud800""#, (LoneSurrogate, 1)),
        (br#""\ud800\n""#, (LoneSurrogate, 1)),
        (b"\"ok\xff\"", (InvalidUtf8, 3)),
        (b"\"\xc3\"", (InvalidUtf8, 1)),
        (b"\"\xed\xa0\x80\"", (InvalidUtf8, 1)),
        (b"\"\\n\xe2\x82\"", (InvalidUtf8, 3)),
    ] {
        assert_eq!(fault(input), expected, "{}", String::from_utf8_lossy(input));
    }
}

#[test]
fn the_end_is_found_at_every_distance() {
    for length in 0..70 {
        for last in [b'"', b'\\', 0x1f, 0] {
            for filler in [b'a', 0x20, 0x21, 0x23, 0x7f, 0x5b, 0x5d, 0xc3] {
                let mut input = vec![filler; length];
                input.extend([last; 40]);
                let mut ignore = || ();
                let found = special(&input, 0, &mut Pace::new(&mut ignore));
                let ascii = filler < 0x80 || length == 0;
                assert_eq!(found, Stretch { end: length, ascii }, "{filler:x} {last:x}");
            }
        }
    }
}

#[test]
fn short_strings() {
    for (input, expected) in [
        (&b"abc\"5678"[..], Some((3, 0x63_62_61))),
        (b"\"2345678", Some((0, 0))),
        (b"1234567\"", Some((7, 0x37_36_35_34_33_32_31))),
        (b"12345678\"", None),
        (b"abc\"", None),
        (b"ab\\\"5678", None),
        (b"ab\n\"5678", None),
        (b"\xc3\xa9c\"5678", None),
        (b"a\"\xc3\xa95678", Some((1, 0x61))),
    ] {
        assert_eq!(short(input), expected, "{input:x?}");
    }
}

#[test]
fn a_character_across_two_steps_is_whole() {
    for shift in 0..4 {
        let mut input = vec![b'"'];
        input.extend(vec![b'x'; shift]);
        input.extend("😀".repeat(Pace::STEP / 3).into_bytes());
        input.push(b'"');
        assert_eq!(canonical(&input).unwrap().as_bytes(), input);
        let cut = input.len() - 3;
        input[cut] = b'x';
        assert_eq!(fault(&input).0, Violation::InvalidUtf8);
    }
}

#[test]
fn decoding_inverts_escaping() {
    for code in (0..0x800).chain([0xffff, 0x10000, 0x10ffff]) {
        let Some(character) = char::from_u32(code) else { continue };
        let mut buffer = [0; 6];
        let spelled = [escape(character, &mut buffer), b"\""].concat();
        let (bytes, lengths): (Vec<u8>, Vec<usize>) = decode(&spelled).unzip();
        assert_eq!(bytes, decode_raw(&spelled).collect::<Vec<u8>>());
        let units: String = character
            .encode_utf16(&mut [0; 2])
            .iter()
            .map(|unit| format!("\\u{unit:04X}"))
            .collect();
        assert_eq!(bytes, decode_raw(units.as_bytes()).collect::<Vec<u8>>());
        assert_eq!(bytes, character.to_string().into_bytes());
        assert_eq!(lengths.iter().sum::<usize>(), spelled.len() - 1);
    }
}
