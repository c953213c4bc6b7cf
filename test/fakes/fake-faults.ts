/** Faults that a test puts into the fake daemon. */

export interface FakeFailure {
  readonly code: string;
  readonly message: string;
  readonly faultDomain: "guest" | "host" | "store" | "queue" | "user" | "bug";
  readonly retryable: boolean;
  readonly poisons?: boolean;
}

export type FaultAction =
  /** Later than otherwise. */
  | { readonly kind: "delay"; readonly ms: number }
  /** Never answers, except to a cancel. */
  | { readonly kind: "hang" }
  | { readonly kind: "fail"; readonly failure?: Partial<FakeFailure> }
  /** One child of a fork fails, the others do not. */
  | { readonly kind: "failChild"; readonly index: number; readonly failure?: Partial<FakeFailure> }
  /** The connection ends instead of an answer. */
  | { readonly kind: "drop" }
  /** A wrong answer: sent as it is. */
  | { readonly kind: "reply"; readonly result: unknown }
  /** The guest ends its VM: the call fails, and the event is sent. */
  | { readonly kind: "endGuest" };

export interface Fault {
  readonly method: string;
  /** For `sandbox.call`: only this operation of the agent. */
  readonly op?: string;
  /** Which matching call, from 1; `every` for all. Default 1. Counted from the injection on. */
  readonly nth?: number | "every";
  readonly action: FaultAction;
}

export class FaultPlan {
  #faults: { readonly fault: Fault; seen: number }[] = [];

  inject(fault: Fault): void {
    this.#faults.push({ fault, seen: 0 });
  }

  clear(): void {
    this.#faults = [];
  }

  /** What befalls this call. */
  take(method: string, op: string | undefined): readonly FaultAction[] {
    const actions: FaultAction[] = [];
    for (const entry of this.#faults) {
      const { fault } = entry;
      if (fault.method !== method || (fault.op !== undefined && fault.op !== op)) {
        continue;
      }
      entry.seen += 1;
      if (fault.nth === "every" || entry.seen === (fault.nth ?? 1)) {
        actions.push(fault.action);
      }
    }
    return actions;
  }
}

export function failureOf(partial: Partial<FakeFailure> | undefined): FakeFailure {
  return {
    code: "FAULT_INJECTED",
    message: "A test wanted this to fail",
    faultDomain: "host",
    retryable: true,
    ...partial,
  };
}
