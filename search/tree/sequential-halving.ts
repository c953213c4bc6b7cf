/**
 * How many visits an action must have to be the one that simulation `turn` (from 0) goes through: `considered` actions get equal
 * visits until their share of the budget is used up, then the better half of them goes on, at least two.
 *
 * Source: Karnin, Koren, Somekh, "Almost optimal exploration in multi-armed bandits" (2013), as Danihelka and others use it at the
 * root (ICLR 2022): each phase has budget / ⌈log2 considered⌉ simulations, rounded down to whole visits an action, at least one.
 */
export function consideredVisits(considered: number, budget: number, turn: number): number {
  if (considered <= 1) return turn;
  const phases = Math.ceil(Math.log2(considered));
  let actions = considered;
  let visits = 0;
  let begin = 0;
  for (;;) {
    const rounds = Math.max(1, Math.floor(budget / (phases * actions)));
    const end = begin + rounds * actions;
    if (turn < end) return visits + Math.floor((turn - begin) / actions);
    begin = end;
    visits += rounds;
    actions = Math.max(2, Math.floor(actions / 2));
  }
}
