/** A final answer whose effects are undone. */
@SuppressWarnings("serial")
final class Refused extends Exception {
    final transient Answer answer;

    Refused(Answer answer) {
        this.answer = answer;
    }
}
