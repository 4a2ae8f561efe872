"""Errors of the service, and the one table that says how each is answered.

search_spaces.InvalidConfigError        exit 2   422
 +- EmptySpaceError                     exit 2   422
trials.TrialError
 +- SpecError                           exit 2   422
 +- WorkloadError                       exit 2   422
 +- TrialSetupError                     exit 4   503
AutotuneError
 +- SettingsError                       exit 2   422
 +- UnsupportedExportError              exit 2   422   the format cannot express the config
 +- PriceBookError                      exit 2   422   no prices that can be counted with
 |   +- NoOfferFitsError                exit 5   422   no machine of the book holds a trial
 +- StudyNotFoundError                  exit 3   404
 +- StudyExistsError                    exit 3   409
 +- StudyMismatchError                  exit 3   409   resume with another space, workload, ...
 +- StudyBusyError                      exit 3   409   another driver runs it
 +- LeaseLostError                      exit 3   409   another driver took it over
 +- StoreError                          exit 4   503
 |   +- StoreUnreachableError           exit 4   503
 |   +- StoreSchemaError                exit 4   503   run `autotune migrate`
 +- WorkersError                        exit 4   503   no slots, cluster unreachable
 +- TrackingError                       exit 4   503   a tracker that lacks its client, or refuses
 +- NothingFitsError                    exit 5   422   no trial of the study completed
 +- NoMeasurementsError                 exit 3   404   asked for the front before there is one
anything else is a bug                  exit 1   500   traceback logged
"""

from dataclasses import dataclass

from search_spaces import EmptySpaceError, InvalidConfigError
from trials.errors import SpecError, TrialError, TrialSetupError, WorkloadError


class AutotuneError(Exception):
    """Base of the service's errors. Takes one message, so that it survives pickling."""


class SettingsError(AutotuneError):
    """A flag, an environment variable or a settings file that says nothing usable."""


class UnsupportedExportError(AutotuneError):
    """A config that an export format cannot express."""


class PriceBookError(AutotuneError):
    """A price book that cannot be read, or has no price for what is asked."""


class NoOfferFitsError(PriceBookError):
    """No machine of a price book holds any trial of the study."""


class StudyNotFoundError(AutotuneError):
    """No study of that name in the store."""


class StudyExistsError(AutotuneError):
    """A study of that name is in the store already."""


class StudyMismatchError(AutotuneError):
    """A study resumed with something other than what it was begun with."""


class StudyBusyError(AutotuneError):
    """Another living driver runs the study."""


class LeaseLostError(AutotuneError):
    """This driver no longer owns the study: another took it over."""


class StoreError(AutotuneError):
    """The store refused or failed."""


class StoreUnreachableError(StoreError):
    """The database cannot be opened: wrong address, login, folder or a full disk."""


class StoreSchemaError(StoreError):
    """The database has another schema version than this program."""


class WorkersError(AutotuneError):
    """No slots to run trials on: impossible request, unreachable cluster, slots that die."""


class TrackingError(AutotuneError):
    """An experiment tracker whose client is not installed, or that refuses."""


class NothingFitsError(AutotuneError):
    """The study ended without one completed trial."""


class NoMeasurementsError(AutotuneError):
    """The study has no measured trial to show yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """How an error is answered on the command line and over HTTP."""

    exit_code: int
    http_status: int


REPLIES: dict[type[Exception], Reply] = {
    InvalidConfigError: Reply(exit_code=2, http_status=422),
    EmptySpaceError: Reply(exit_code=2, http_status=422),
    TrialError: Reply(exit_code=4, http_status=503),
    SpecError: Reply(exit_code=2, http_status=422),
    WorkloadError: Reply(exit_code=2, http_status=422),
    TrialSetupError: Reply(exit_code=4, http_status=503),
    AutotuneError: Reply(exit_code=1, http_status=500),
    SettingsError: Reply(exit_code=2, http_status=422),
    UnsupportedExportError: Reply(exit_code=2, http_status=422),
    PriceBookError: Reply(exit_code=2, http_status=422),
    NoOfferFitsError: Reply(exit_code=5, http_status=422),
    StudyNotFoundError: Reply(exit_code=3, http_status=404),
    StudyExistsError: Reply(exit_code=3, http_status=409),
    StudyMismatchError: Reply(exit_code=3, http_status=409),
    StudyBusyError: Reply(exit_code=3, http_status=409),
    LeaseLostError: Reply(exit_code=3, http_status=409),
    StoreError: Reply(exit_code=4, http_status=503),
    StoreUnreachableError: Reply(exit_code=4, http_status=503),
    StoreSchemaError: Reply(exit_code=4, http_status=503),
    WorkersError: Reply(exit_code=4, http_status=503),
    TrackingError: Reply(exit_code=4, http_status=503),
    NothingFitsError: Reply(exit_code=5, http_status=422),
    NoMeasurementsError: Reply(exit_code=3, http_status=404),
}


def reply_to(error: Exception) -> Reply | None:
    """Return how an error is answered: by its own entry or its nearest base's; None for a bug."""
    return next((REPLIES[kind] for kind in type(error).__mro__ if kind in REPLIES), None)
