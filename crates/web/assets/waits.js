// Which Jobs wait, and for what. The server decides that (`tally explain`): it is asked about Jobs whose own status leaves it open.

import { getJson } from './api.js';
import { applyWait, chooseAsked } from './model.js';

/** By the uid of a Job: {reason, message}. */
const known = new Map();
/** When it was asked about a Job. */
const askedAt = new Map();
let isAsking = false, isMissing = false;

/** Shows what is known in a compact Job; it is returned. */
export function withWait(job) {
  if (!job.mayWait) {
    known.delete(job.uid);
    askedAt.delete(job.uid);
  }
  return applyWait(job, known.get(job.uid));
}

/** What the explanation of one Job says. */
export function learnWait(uid, { state, reasons = [] }) {
  if (state === 'Waiting' && reasons.length > 0) known.set(uid, reasons[0]);
  else known.delete(uid);
}

/** Asks about those of the compact Jobs for which it is time. Resolves to whether something was learned. */
export async function askWhichWait(jobs) {
  if (isAsking || isMissing) return false;
  const asked = chooseAsked(jobs, askedAt, Date.now());
  if (asked.length === 0) return false;
  isAsking = true;
  try {
    const { jobs: found } = await getJson(`/explain/jobs?of=${asked.map((job) => `${job.namespace}/${job.name}`).join(',')}`);
    for (const { uid } of asked) {
      if (found[uid]) known.set(uid, found[uid]);
      else known.delete(uid);
    }
    return true;
  } catch (error) {
    // 404: this server does not explain.
    if (error.status === 404) isMissing = true;
    return false;
  } finally {
    isAsking = false;
  }
}
