"""How an actor moves who does several actions at once: legs first, then the trunk, then the arms.

Legs that walk swing free arms, a trunk that bows lets them hang; arms with something to do are moved last and so
have the final word. All motions are periodic in time, at the actor's own tempo, phase and amplitude.
"""

from collections.abc import Callable

from mule.stage import arm_motions, body_motions
from mule.stage.classes import ACTIONS
from mule.stage.poses import LEFT, RIGHT, STANDING_HEIGHT, Beat, Pose, sine, standing, with_trunk

Move = Callable[[Pose, Beat, tuple[int, ...]], Pose]


def pose_of(actions: tuple[str, ...], beat: Beat) -> Pose:
    """The body of an actor who does all these actions at once."""
    pose = standing(len(beat.time_s))
    breath = 0.004 * sine(beat.time_s * 0.3 + beat.phase)
    pose = with_trunk(pose, pelvis=(0.0, 0.0, STANDING_HEIGHT + breath - 0.004))
    arms = arms_of(actions, is_right_handed=beat.is_right_handed)
    has_free_legs = not any(ACTIONS[name].legs for name in actions)
    for name in sorted(actions, key=lambda name: _order(name)):
        pose = _MOVES[name](pose, beat, arms[name])
        if name == "jacks" and has_free_legs:
            pose = body_motions.hopping_apart(pose, beat)
    return pose


def arms_of(actions: tuple[str, ...], *, is_right_handed: bool) -> dict[str, tuple[int, ...]]:
    """Which arms each action moves: a handshake the right one, others the better hand first."""
    preferred = [RIGHT, LEFT] if is_right_handed else [LEFT, RIGHT]
    free = [RIGHT, LEFT] if any(ACTIONS[name].group == "pair" for name in actions) else preferred
    taken: dict[str, tuple[int, ...]] = {}
    for name in sorted(
        actions, key=lambda name: ("pair", "object", "arms", "body").index(ACTIONS[name].group)
    ):
        count = ACTIONS[name].num_arms
        taken[name], free = tuple(free[:count]), free[count:]
    return taken


def _order(name: str) -> int:
    action = ACTIONS[name]
    return 0 if action.legs and action.num_arms == 0 else 1 if action.torso and action.num_arms == 0 else 2


_MOVES: dict[str, Move] = {
    "walk": body_motions.walk,
    "run": body_motions.run,
    "squat": body_motions.squat,
    "jump": body_motions.jump,
    "bow": body_motions.bow,
    "sway": body_motions.sway,
    "kick_ball": body_motions.kick_ball,
    "push_box": body_motions.push_box,
    "arm_circle": arm_motions.arm_circle,
    "clap": arm_motions.clap,
    "wave": arm_motions.wave,
    "punch": arm_motions.punch,
    "jacks": arm_motions.jacks,
    "salute": arm_motions.salute,
    "carry_box": arm_motions.carry_box,
    "overhead_lift": arm_motions.overhead_lift,
    "bounce_ball": arm_motions.bounce_ball,
    "juggle": arm_motions.juggle,
    "handshake": arm_motions.handshake,
    "high_five": arm_motions.high_five,
    "pass_ball": arm_motions.pass_ball,
}
